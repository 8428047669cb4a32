internal import Control
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Turns what happens to a mount into events for whoever listens on the control socket. Any thread.
final class MountAnnouncer: Sendable {
    private let mountpoint: String
    private let control = Mutex<ControlServer?>(nil)

    init(mountpoint: FilePath) {
        self.mountpoint = mountpoint.string
    }

    /// From now on events go there.
    func connect(to server: ControlServer?) {
        control.withLock { $0 = server }
    }

    func announce(_ event: LockEvent) {
        control.withLock { $0 }?.broadcast(message(for: event))
    }

    /// The answer to who asks for events: the state now.
    func subscription(_ status: LockStatus) -> ControlEvent {
        .state(
            MountStatus.State(rawValue: status.state) ?? .locked, time: UtcTime.now(), mountpoint: mountpoint,
            details: ["reasons": .array(status.reasons.map { .string($0.rawValue) })])
    }

    private func message(for event: LockEvent) -> ControlEvent {
        switch event {
        case .willLock(let reasons, let grace):
            make(
                .willLock,
                [
                    "reasons": .array(reasons.map { .string($0.rawValue) }),
                    "graceSeconds": .number(Double(grace) / 1000),
                ])
        case .didLock(let receipt): make(.didLock, ["receipt": JSONValue(encoding: receipt) ?? .null])
        case .willUnlock: make(.willUnlock)
        case .didUnlock: make(.didUnlock)
        case .denied(let count): make(.denied, ["count": .unsigned(count)])
        case .integrityError(let reason): make(.integrityError, ["reason": .string(reason)])
        }
    }

    private func make(_ name: ControlEvent.Name, _ details: [String: JSONValue] = [:]) -> ControlEvent {
        ControlEvent(name, time: UtcTime.now(), mountpoint: mountpoint, details: details)
    }
}

extension JSONValue {
    /// What a value is as JSON; nil where it cannot be said in it.
    init?(encoding value: some Encodable) {
        guard let encoded = try? JSONEncoder().encode(value),
            let decoded = try? JSONDecoder().decode(JSONValue.self, from: encoded)
        else { return nil }
        self = decoded
    }
}
