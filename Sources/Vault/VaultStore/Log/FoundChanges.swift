package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The logged changes found by a read-only store, which does not put them in place. Any thread.
package final class FoundChanges: Sendable {
    package struct Found: Sendable {
        package var log: Descriptor?
        package var files: [UInt64: LoggedChanges] = [:]
        /// The reason why the log cannot be read.
        package var fault: String?
        /// Differs from the number of earlier changes.
        var number = 0

        /// Returns the changes for a file with this seal counter (FileFormat: Log-11).
        func changes(of fileID: UInt64, sealCounter: UInt64) -> LoggedChanges {
            guard let changes = files[fileID], changes.sealCounter >= sealCounter else { return LoggedChanges() }
            return changes
        }
    }

    private struct State {
        var found = Found()
        var stamp: FileStamp?
        /// The header of the last log with entries.
        var header: LogHeader?
        /// Time of the last check, in milliseconds of CLOCK_MONOTONIC.
        var lastCheck = 0
    }

    private let root: Descriptor
    private let keyRing: KeyRing
    private let isFollowing: Bool
    private let state = Mutex(State())

    /// - Parameter isFollowing: true if another process may be writing the log.
    package init(_ root: Descriptor, _ keyRing: KeyRing, isFollowing: Bool) {
        (self.root, self.keyRing, self.isFollowing) = (root, keyRing, isFollowing)
        state.withLock { refresh(&$0) }
    }

    package var current: Found { isFollowing ? refreshed(isRetry: false) : state.withLock { $0.found } }

    /// Returns the current changes. If another process writes the log, they may be up to a second old.
    /// - Parameter isRetry: true to check again in any case.
    package func refreshed(isRetry: Bool) -> Found {
        state.withLock { state in
            if isFollowing && (isRetry || monotonicMilliseconds() - state.lastCheck >= FollowedFile.checkInterval) {
                refresh(&state)
            }
            return state.found
        }
    }

    private func refresh(_ state: inout State) {
        state.lastCheck = monotonicMilliseconds()
        let stamp = (try? root.statusIfPresent(of: RedoLog.fileName))?.map(FileStamp.init)
        if isFollowing && state.found.number > 0 && stamp == state.stamp { return }
        let number = state.found.number + 1
        do throws(StoreError) {
            // Try twice, because the header has a wrong tag for a moment while another process writes it.
            let (found, header) = if isFollowing, let read = try? readLog() { read } else { try readLog() }
            if let old = state.header, let header, header.salt == old.salt, header.startSequence < old.startSequence {
                // The same log's start only moves forward, so this is an old header. Keep the changes.
                state.found.fault = LogRecovery.older
                return
            }
            state.header = header ?? state.header
            state.found = found
        } catch {
            state.found = Found(fault: error.reason)
        }
        state.stamp = stamp
        state.found.number = number
    }

    private func readLog() throws(StoreError) -> (found: Found, header: LogHeader?) {
        let wasClean = WriterLockFile.isClean(root)
        guard let contents = try LogContents.read(root, keyRing) else {
            let isMissing = !isFollowing && WriterLockFile.isUnclean(root)
            return (Found(fault: isMissing ? LogRecovery.missing : nil), nil)
        }
        // Check again, because a writer may have begun meanwhile and made them.
        if wasClean && WriterLockFile.isClean(root) && !contents.isEmpty {
            return (Found(fault: LogRecovery.afterCleanEnd), contents.header)
        }
        let fault = LogRecovery.damage(contents)
        return (Found(log: contents.log, files: contents.files, fault: fault), contents.header)
    }
}
