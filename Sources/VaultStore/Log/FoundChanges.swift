internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The changes that a read-only store has found in the log, which it does not put in place. Any thread.
final class FoundChanges: Sendable {
    struct Found: Sendable {
        var log: Descriptor?
        var files: [UInt64: LoggedChanges] = [:]
        /// The reason why the log cannot be read.
        var fault: String?
        /// Differs from that of earlier changes.
        var number = 0
    }

    private struct State {
        var found = Found()
        var stamp: FileStamp?
        /// Time of the last look, in milliseconds of CLOCK_MONOTONIC.
        var lastLook = 0
    }

    private let root: Descriptor
    private let keyRing: KeyRing
    private let isFollowing: Bool
    private let state = Mutex(State())

    /// - Parameter isFollowing: another process may be writing the log.
    init(_ root: Descriptor, _ keyRing: KeyRing, isFollowing: Bool) {
        (self.root, self.keyRing, self.isFollowing) = (root, keyRing, isFollowing)
        state.withLock { look(&$0) }
    }

    var current: Found { isFollowing ? refreshed(isRetry: false) : state.withLock { $0.found } }

    /// The changes of now, or if another process writes the log, of at most a second ago.
    /// - Parameter isRetry: looks again in any case.
    func refreshed(isRetry: Bool) -> Found {
        state.withLock { state in
            if isFollowing && (isRetry || monotonicMilliseconds() - state.lastLook >= EncryptedFile.checkInterval) {
                look(&state)
            }
            return state.found
        }
    }

    private func look(_ state: inout State) {
        state.lastLook = monotonicMilliseconds()
        let stamp = (try? root.statusIfPresent(of: RedoLog.entry))?.map(FileStamp.init)
        if isFollowing && state.found.number > 0 && stamp == state.stamp { return }
        state.stamp = stamp
        let number = state.found.number + 1
        do throws(StoreError) {
            let changes = try LogRecovery.changes(root, keyRing)
            state.found = Found(log: changes?.log, files: changes?.files ?? [:], number: number)
        } catch {
            state.found = Found(fault: error.reason, number: number)
        }
    }
}
