internal import Control
internal import FileSystem
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// Answers the control socket's requests for one mount. Any thread.
struct StatusReporter: Sendable {
    let version: String
    let request: MountRequest
    let opened: any OpenedSource
    let lock: MountLock
    let announcer: MountAnnouncer
    let session: FuseSession
    /// The most damaged objects listed by `status`.
    private static let shownDamage = 20
    /// The seconds after which a silent store is a problem.
    private static let longestAnswer = 10
    private let mounted = UtcTime.now()
    private let start = ContinuousClock.now

    func answer(_ request: ControlRequest, reply: @escaping @Sendable (ControlResponse) -> Void) {
        switch request {
        case .status: reply(.status(status()))
        case .sync: synchronize(reply)
        case .lock(let forgetsKeys):
            do throws(ControlFailure) {
                if forgetsKeys { try opened.checkForgetting() }
                lock.lock(forgetsKeys: forgetsKeys, reply: reply)
            } catch {
                reply(.error(error))
            }
        case .unlock(let secret): lock.unlock(secret, reply: reply)
        case .events:
            let status = lock.status()
            reply(
                .subscribed(
                    ControlEvent(state: status.state, reasons: status.reasons, mountpoint: announcer.mountpoint)))
        }
    }

    /// Answers `sync` on a thread of its own, because the store may take long.
    private func synchronize(_ reply: @escaping @Sendable (ControlResponse) -> Void) {
        do throws(StoreError) {
            let thread = try BackgroundThread(blocksSignals: true) { [fileSystem = opened.fileSystem] in
                do throws(StoreError) {
                    try fileSystem.synchronizeEverything()
                } catch {
                    return reply(.error(ControlFailure(.notDurable, error.reason)))
                }
                let missing = fileSystem.missingData.joined(separator: "; ")
                reply(missing.isEmpty ? .synchronized : .error(ControlFailure(.notDurable, missing)))
            }
            thread.detach()
        } catch {
            reply(.error(ControlFailure(.failed, error.reason)))
        }
    }

    private func status() -> MountStatus {
        let statistics = opened.fileSystem.statistics()
        let lock = lock.status()
        let problems = opened.problems + silence() + Self.lines(session.damage)
        var status = MountStatus(
            version: version, pid: getpid(), vaultPath: request.source.string, vaultID: "",
            mountpoint: request.mountpoint.string, state: lock.state, readOnly: request.options.isReadOnly,
            mounted: mounted)
        status.uptimeSeconds = (ContinuousClock.now - start).components.seconds
        status.keysNeverSwapped = SecretMemory.allLocked
        status.cacheNeverSwapped = statistics.cacheNeverSwapped
        status.lock = lock
        status.memory = MemoryProtection(cacheIsLocked: opened.fileSystem.cache.isLocked)
        status.statistics = statistics
        status.requests = session.statistics
        status.madeMountpoint = request.options.makesMountpoint ? true : nil
        status.problems = problems.isEmpty ? nil : problems
        opened.complete(&status)
        return status
    }

    /// Returns a line if a request, or work in the background, has waited for the store for too long.
    private func silence() -> [String] {
        guard let since = [session.oldestRequest, opened.unansweredSince].compactMap(\.self).min() else {
            return []
        }
        let seconds = (monotonicNanoseconds() - since) / 1_000_000_000
        if seconds < Self.longestAnswer { return [] }
        return ["\(request.source.shown) has not answered for \(seconds) s: check its disk or its connection"]
    }

    /// Returns lines for the latest damage only, so that the answer stays short.
    private static func lines(_ damage: [Damage]) -> [String] {
        let rest = damage.count - shownDamage
        return damage.suffix(shownDamage).map(\.message)
            + (rest > 0 ? ["damaged: \(rest) more object\(rest == 1 ? "" : "s"): 'vaultfs verify' lists them"] : [])
    }
}

/// Sends a mount's events to the clients of its control socket. Any thread.
final class MountAnnouncer: Sendable {
    let mountpoint: String
    private let control = Mutex<ControlServer?>(nil)

    init(mountpoint: FilePath) { self.mountpoint = mountpoint.string }

    func connect(to server: ControlServer?) { control.withLock { $0 = server } }

    func announce(_ event: LockEvent) {
        control.withLock { $0 }?.broadcast(ControlEvent(event, mountpoint: mountpoint))
    }

    func announceEnd() { control.withLock { $0 }?.broadcast(ControlEvent(isMounted: false, mountpoint: mountpoint)) }
}
