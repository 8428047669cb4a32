internal import Control
internal import FileSystem
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultCrypto

/// Answers the control socket's requests for one mount. Any thread.
struct StatusReporter: Sendable {
    private let request: MountRequest
    private let contents: MountContents
    private let lock: MountLock
    private let announcer: MountAnnouncer
    private let session: FuseSession
    private let mounted = UtcTime.now()
    private let start = ContinuousClock.now

    init(
        request: MountRequest, contents: MountContents, lock: MountLock, announcer: MountAnnouncer, session: FuseSession
    ) {
        self.session = session
        self.lock = lock
        self.announcer = announcer
        self.request = request
        self.contents = contents
    }

    func answer(_ request: ControlRequest, reply: @escaping @Sendable (ControlResponse) -> Void) {
        switch request {
        case .status: reply(.status(status()))
        case .stats: reply(.stats(JSONValue(encoding: contents.fileSystem.statistics()) ?? .object([:])))
        case .lock: lock.lock(reply: reply)
        case .unlock(let secret): lock.unlock(secret, reply: reply)
        case .events: reply(.subscribed(announcer.subscription(lock.status())))
        }
    }

    private func status() -> MountStatus {
        let statistics = contents.fileSystem.statistics()
        let lock = lock.status()
        let problems = contents.problems()
        let memory = MemoryProtection(cacheIsLocked: statistics.cacheLocked)
        return MountStatus(
            version: VaultFS.version, pid: getpid(), vaultPath: request.source.string, vaultID: contents.vaultID,
            view: contents.view, mountpoint: request.mountpoint.string,
            state: MountStatus.State(rawValue: lock.state) ?? .locked,
            readOnly: request.isReadOnly, mounted: mounted,
            uptimeSeconds: (ContinuousClock.now - start).components.seconds, keysLocked: SecretMemory.allLocked,
            cacheLocked: statistics.cacheLocked, lock: JSONValue(encoding: lock), memory: JSONValue(encoding: memory),
            statistics: JSONValue(encoding: statistics), requests: JSONValue(encoding: session.statistics),
            problems: contents.view == nil && problems.isEmpty ? nil : problems)
    }
}
