internal import FoundationEssentials
internal import Glibc
internal import SystemPackage
internal import VaultControl
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore

/// Answers the control socket's requests for one mount. Any thread.
struct StatusReporter: Sendable {
    private let request: MountRequest
    private let vault: VaultID
    private let fileSystem: VaultFileSystem
    private let mounted = Timestamp.now()
    private let start = ContinuousClock.now

    init(request: MountRequest, vault: VaultID, fileSystem: VaultFileSystem) {
        self.request = request
        self.vault = vault
        self.fileSystem = fileSystem
    }

    func answer(_ request: ControlRequest) -> ControlResponse {
        switch request {
        case .status: .status(status())
        case .stats: .stats(Self.value(fileSystem.statistics()) ?? .object([:]))
        case .lock, .unlock, .events:
            .error(ControlFailure(.notSupported, "this daemon does not know '\(request.name)'"))
        }
    }

    private func status() -> MountStatus {
        let statistics = fileSystem.statistics()
        return MountStatus(
            version: VaultFS.version, pid: getpid(), vaultPath: request.vaultPath.string, vaultID: vault.hex,
            mountpoint: request.mountpoint.string, state: .unlocked, readOnly: request.isReadOnly, mounted: mounted,
            uptimeSeconds: (ContinuousClock.now - start).components.seconds, keysLocked: SecretMemory.allLocked,
            cacheLocked: statistics.cacheLocked, statistics: Self.value(statistics))
    }

    /// Nil where they cannot be told: a status without them is better than none.
    private static func value(_ statistics: some Encodable) -> JSONValue? {
        guard let encoded = try? JSONEncoder().encode(statistics) else { return nil }
        return try? JSONDecoder().decode(JSONValue.self, from: encoded)
    }
}
