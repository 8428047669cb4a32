internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// The right to write a vault, which keeps out other machines and other mounts of the same store: a lock on
/// `vaultfs.lock`, and the owner's record in that file (FileFormat, The lock file). Any thread.
///
/// The flock on the root directory works on this machine only, because NFS and FUSE forward locks on files, but not on
/// directories. The lock is an open file description lock (fcntl(2), F_OFD_SETLK), because an NFS server takes such
/// locks for its clients, and flocks do not conflict with them.
package final class WriterLock: Sendable {
    struct State {
        /// Nil if the file could not be opened again.
        var file: Descriptor?
        var record: WriterRecord?
        var isLost = false
        /// True if a former writer had an unclean end, and its remains are not completed yet.
        var followsUncleanEnd = false
        /// True if the former writer has recorded a clean end, with everything in place.
        var followsCleanEnd = false
    }

    /// A check on a thread of its own, for a check with a timeout.
    private struct LimitedCheck {
        var isRunning = false
        /// Number of completed checks, and the result of the last one.
        var ended = 0
        var result: Result<Void, StoreError> = .success(())
    }

    /// Milliseconds for which a check of the lock stays valid.
    private static let checkInterval = 2000
    /// A time of the last check that is always too old.
    private static let never = -checkInterval
    /// Seconds between two checks of `watch`.
    package static let watchInterval = 10

    private let root: Descriptor
    /// True if the store is on a network. A former writer on another machine may then not have seen our lock.
    let isRemote: Bool
    let state: Mutex<State>
    /// Time of the last check, in milliseconds of CLOCK_BOOTTIME, so that a machine checks again after a sleep.
    let lastCheck = Atomic<Int>(never)
    private let isReleased = Monitor(false)
    /// Timeout of a check in `verify`, in seconds. 0 for no timeout.
    private let checkTimeout = Atomic<Int>(0)
    private let limitedCheck = Monitor(LimitedCheck())
    /// Called once, when another process has taken the vault, or the file was removed.
    package let onLoss = Observer<Void>()

    private init(root: Descriptor, file: Descriptor, isRemote: Bool) {
        self.root = root
        self.isRemote = isRemote
        state = Mutex(State(file: file))
    }

    /// Acquires the lock. Retries for up to `wait`.
    /// - Parameter isRemote: nil to ask the store.
    /// - Returns: nil if there is nothing to lock: a reader found no file, or a local store has no locks.
    /// - Throws: `EAGAIN` if another process keeps it for all of `wait`.
    static func acquire(
        root: Descriptor, _ sharing: VaultDirectory.Sharing, wait: Duration, isRemote: Bool? = nil
    ) throws(StoreError) -> WriterLock? {
        let isRemote = isRemote ?? FileSystemType(of: root).isRemote
        return try Descriptor.locking(wait: wait) { () throws(StoreError) -> WriterLock? in
            // Open it each time, because the name may lead to another file by now.
            guard let file = try WriterLockFile.open(root, sharing) else { return nil }
            do throws(StoreError) {
                try WriterLockFile.lock(file, sharing == .exclusive ? F_WRLCK : F_RDLCK)
            } catch {
                // A writer needs locks on a store that several machines can write.
                if error == .system(.wouldBlock) || isRemote && sharing == .exclusive { throw error }
                return nil
            }
            guard try isFree(file, root: root) else { throw .system(.wouldBlock) }
            return WriterLock(root: root, file: file, isRemote: isRemote)
        }
    }

    /// Returns true if other processes lock the same file, and its record names no other living process of this
    /// machine. Such a process may use another mount of the store, because FUSE may not forward locks.
    private static func isFree(_ file: Descriptor, root: Descriptor) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try WriterRecord(parsing: WriterLockFile.read(inPlaceOf: file, root: root))?.isOfLivingOther(
                in: RootIdentity(of: root)) != true
        } catch .system(.noSuchFileOrDirectory), WriterLockFile.moved {
            return false
        }
    }

    /// Writes this process's record, once. If the file has the record of a former writer on another machine, waits
    /// until that writer has checked its lock again. The first change then checks if another process did the same at
    /// the same time.
    /// - Parameter waitMilliseconds: how long to wait for the former writer. Must be longer than `checkInterval`.
    /// - Throws: `EAGAIN` if another process has acquired the lock, or uses the vault another way, since `acquire`;
    ///   `.unavailable` if there is no room for the record, as on btrfs, which overwrites nothing in place; the store's
    ///   error.
    package func claim(waitMilliseconds: Int = 5000) throws(StoreError) {
        let former = try state.withLock { (state) throws(StoreError) -> WriterRecord? in
            guard let file = state.file, state.record == nil else { return nil }
            // Lock again, because the user may have typed a passphrase since `acquire`, or the machine may have slept.
            try WriterLockFile.lock(file, F_WRLCK)
            let content = try WriterLockFile.read(inPlaceOf: file, root: root)
            let former = WriterRecord(parsing: content)
            let identity = RootIdentity(of: root)
            if former?.isOfLivingOther(in: identity) == true { throw .system(.wouldBlock) }
            state.followsUncleanEnd = WriterLockFile.isUnclean(content)
            state.followsCleanEnd = content == WriterLockFile.noWriter
            // Make the log before the record, because after an unclean end an absent log is damage. The first entry
            // retries this.
            if !state.followsUncleanEnd { _ = try? RedoLog.openToWrite(root, size: LogHeader.defaultLogSize) }
            let record = try WriterRecord.own(root: identity)
            do throws(StoreError) {
                try WriterLockFile.write(record.bytes, to: file)
                try file.synchronize(dataOnly: false)
            } catch {
                // Restore the content, of which a part may be overwritten. The vault has not been changed yet.
                try? WriterLockFile.write(content, to: file)
                throw error.isNoSpace ? error.unavailable("vaultfs.lock cannot be written") : error
            }
            state.record = record
            return former?.isOfLivingOther(in: identity) == nil ? former : nil
        }
        guard let former else { return }
        // Wait only for a writer that may be alive: on a local store, another machine's record is left over from a
        // crash. But a process of another container may see only the record, not the lock.
        if isRemote || former.isOfThisMachine { usleep(useconds_t(waitMilliseconds) * 1000) }
    }

    /// Makes sure, before a change of the vault, that no other process has taken it. The check is at most 2 s old.
    /// Local stores are checked too, because another process may use a FUSE mount of the same store. Waits for the
    /// store as long as the change itself would, or for the time of `limitChecks`.
    /// - Throws: `EIO` once another process has the vault, and after `release`; the store's error if the check fails;
    ///   `ETIMEDOUT`.
    package func verify() throws(StoreError) {
        if Self.bootMilliseconds() - lastCheck.load(ordering: .acquiring) < Self.checkInterval { return }
        try verifyNow()
    }

    /// Does the same as `verify`, but always checks. Reads from the store, so it also shows that the store answers.
    func verifyNow() throws(StoreError) {
        let seconds = checkTimeout.load(ordering: .relaxed)
        if seconds > 0 { try check(within: seconds) } else { try check() }
    }

    /// Limits the wait of `verify`. Needed for a store whose calls fail if it does not answer, because some calls of a
    /// check wait all the same (NFS `soft`: nfs4_wait_clnt_recover in fs/nfs/nfs4state.c, seen on 6.1).
    package func limitChecks(seconds: Int) { checkTimeout.store(seconds, ordering: .relaxed) }

    private func check(within seconds: Int) throws(StoreError) {
        let ended = limitedCheck.update { check in
            if !check.isRunning { check.isRunning = startCheck() }
            return check.ended
        }
        let result = limitedCheck.wait(until: .now + .seconds(seconds)) { $0.ended > ended ? $0.result : nil }
        guard let result else { throw .system(.timedOut) }
        try result.get()
    }

    private func startCheck() -> Bool {
        let thread = try? BackgroundThread { [self] in
            let result = Result { () throws(StoreError) in try check() }
            limitedCheck.update { ($0.isRunning, $0.ended, $0.result) = (false, $0.ended + 1, result) }
        }
        thread?.detach()
        return thread != nil
    }

    private func check() throws(StoreError) {
        let now = Self.bootMilliseconds()
        try state.withLock { (state) throws(StoreError) in
            guard try stillHolds(&state) else { throw .refused(.ioError) }
            lastCheck.store(now, ordering: .releasing)
        }
    }

    /// Detects a loss during idle times. The body of a thread. Returns after `release` and after a loss.
    /// - Parameters:
    ///   - interval: seconds between two checks.
    ///   - onError: called with an error of the store, which is not a loss.
    package func watch(interval: Int = watchInterval, onError: (StoreError) -> Void = { _ in }) {
        var known: FileStamp?
        while isReleased.wait(until: .now + .seconds(interval), for: { $0 ? true : nil }) == nil {
            // Compare the stamp, which is in the kernel's memory, because reading the file would wake an idle disk.
            let stamp = (try? root.status(of: WriterLockFile.entry)).map { FileStamp($0) }
            if let stamp, stamp == known { continue }
            do throws(StoreError) {
                let isHeld = try state.withLock { (state) throws(StoreError) in
                    state.record == nil ? false : try stillHolds(&state)
                }
                if !isHeld { return }
                known = stamp
            } catch {
                known = nil
                onError(error)
            }
        }
    }

    /// Returns false once another process has the vault, or the file was removed. Registers this when it happens.
    private func stillHolds(_ state: inout State) throws(StoreError) -> Bool {
        if state.isLost { return false }
        if try isOwn(&state) { return true }
        state.isLost = true
        onLoss.notify()
        return false
    }

    /// Takes the lock again, which a server refuses if another process has it. Also compares the record, which shows if
    /// another process had it since.
    private func isOwn(_ state: inout State) throws(StoreError) -> Bool {
        guard let record = state.record else { throw .refused(.ioError) }
        if let file = state.file {
            do throws(StoreError) { return try isOwn(file, record) } catch {}
        }
        // Drop a descriptor that lost its lock (NFS: EIO, GlusterFS: EBADFD) or its name, because it is useless. Its
        // lock, if any, must be dropped before another is taken.
        WriterLockFile.drop(&state.file)
        do throws(StoreError) {
            // Do not make the file, because another process may have made it, written, and removed it.
            let fresh = try WriterLockFile.openExisting(root, flags: O_RDWR)
            state.file = fresh
            return try isOwn(fresh, record)
        } catch .system(.noSuchFileOrDirectory) { return false }
    }

    private func isOwn(_ file: Descriptor, _ record: WriterRecord) throws(StoreError) -> Bool {
        do throws(StoreError) { try WriterLockFile.lock(file, F_WRLCK) } catch .system(.wouldBlock) { return false }
        return try WriterRecord(parsing: WriterLockFile.read(inPlaceOf: file, root: root)) == record
    }

    /// True once another process was found to have the vault, or the file to be removed.
    package var isLost: Bool { state.withLock { $0.isLost } }

    /// True if a former writer had an unclean end, and its remains are not completed yet. Nil before `claim`.
    var followsUncleanEnd: Bool? { state.withLock { $0.record == nil ? nil : $0.followsUncleanEnd } }

    /// True if the former writer has recorded a clean end, with everything in place. Nil before `claim`.
    var followsCleanEnd: Bool? { state.withLock { $0.record == nil ? nil : $0.followsCleanEnd } }

    /// Must be called when all remains of an unclean end are completed, durably.
    func clearUncleanEnd() { state.withLock { $0.followsUncleanEnd = false } }

    /// Removes the record and drops the lock, after the last change, so that the next machine need not wait. On a
    /// network store the record stays unless everything has reached the server. Another process's record stays.
    /// - Parameter isClean: false if not everything is in place. The record then stays, so that the end is unclean.
    /// - Returns: the store's error if the record stays because of it. The lock is dropped all the same.
    @discardableResult
    package func release(isClean: Bool = true) -> StoreError? {
        let failure = state.withLock { state -> StoreError? in
            defer {
                state.record = nil
                WriterLockFile.drop(&state.file)
                lastCheck.store(Self.never, ordering: .releasing)
            }
            do throws(StoreError) {
                try removeRecord(&state, isClean: isClean)
                return nil
            } catch { return error }
        }
        isReleased.update { $0 = true }
        return failure
    }

    private func removeRecord(_ state: inout State, isClean: Bool) throws(StoreError) {
        // Check this even if the record stays, because a loss must be noticed before the mount ends.
        guard state.record != nil, try stillHolds(&state), isClean, let file = state.file else { return }
        if isRemote { try retrying { linux_syncfs(root.fd) } }
        try WriterLockFile.write(
            state.followsUncleanEnd ? WriterLockFile.incomplete : WriterLockFile.noWriter, to: file)
    }

    private static func bootMilliseconds() -> Int { nanoseconds(of: CLOCK_BOOTTIME) / 1_000_000 }
}
