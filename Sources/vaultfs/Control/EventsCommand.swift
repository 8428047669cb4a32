internal import ArgumentParser
internal import Control
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// `vaultfs events [MOUNTPOINT]`
struct EventsCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "events", abstract: "Print what happens to a mount, a line for each event, until it ends.",
        discussion: """
            The first line tells the state now; then will-lock, did-lock, will-unlock, did-unlock, denied and \
            integrity-error as they happen. Ends with success when the mount ends, or when nobody reads the output. \
            With --json: each line is an object, as the control socket sends it.
            """)

    @Argument(help: "Where a vault is mounted; may be left out where you have only one mount.")
    var mountpoint: PathArgument?

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        let client = try connect()
        switch try client.send(.events) {
        case .subscribed(let event): guard try write(event, line: nil) else { return }
        case .error(let failure): throw CommandFailure(.failure, Console.shown(failure.message))
        case .status, .stats, .locked, .unlocked: throw ControlError.notUnderstood("no event")
        }
        while let (event, line) = try client.nextEvent(whileReading: STDOUT_FILENO) {
            guard try write(event, line: line) else { return }
        }
    }

    private func connect() throws -> ControlClient {
        guard let mountpoint else { return try DaemonAccess.onlyMount(option: nil).socket.connect() }
        let mount = try DaemonAccess.mount(at: mountpoint.path)
        guard let socket = DaemonAccess.socket(of: mount) else {
            throw CommandFailure(.failure, "\(mount.path.shown): \(ControlError.noDaemon)")
        }
        return try socket.connect()
    }

    /// At once, past the buffer of stdout. False when nobody reads.
    private func write(_ event: ControlEvent, line: Data?) throws(CommandFailure) -> Bool {
        do throws(StoreError) {
            try writeAll(
                (json ? line.map(Array.init) ?? [UInt8](event.line) : Array(Self.text(event).utf8)) + [
                    UInt8(ascii: "\n")
                ], to: STDOUT_FILENO)
        } catch {
            if error.errno == .brokenPipe { return false }
            throw CommandFailure(.failure, "cannot write: \(error.errno)")
        }
        return true
    }

    /// `2026-11-21T10:00:00Z will-lock /mnt grace seconds 0, reasons lock-file`
    private static func text(_ event: ControlEvent) -> String {
        var parts = [event.time, event.name.rawValue, event.mountpoint].map(Console.shown)
        let details = event.details.filter { $0.key != "receipt" }
        if !details.isEmpty { parts.append(JSONText.line(.object(details)) ?? "") }
        if let receipt = event.details["receipt"] { parts.append(ReceiptText(receipt).summary) }
        return parts.joined(separator: " ")
    }
}
