internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
package import Synchronization
internal import VaultFormat

/// The parts of an open file for any thread, without the write lock. Each has a lock of its own, or is atomic.
package final class FileParts: Sendable {
    let store: Store
    package let records: ChunkRecords
    package let lengths: FileLength
    package let syncs: FileSyncs
    package let attributes = BackingAttributes()
    /// Number of open handles of programs. The sealer's reference is not counted.
    package let openHandles = Atomic<Int>(0)

    init(store: Store, _ reader: Descriptor, _ header: FileHeader, _ keys: FileKeys, length: UInt64) {
        self.store = store
        records = ChunkRecords(header, keys, reader, in: store)
        lengths = FileLength(length, header)
        syncs = FileSyncs(hasUnknownWrites: !header.isSealed)
    }

    var fileID: UInt64 { records.fileID.load(ordering: .acquiring) }
    var keys: FileKeys { records.keys }
    var reader: Descriptor { records.reader }
    /// The file's name in the block cache.
    var token: UInt64 { records.token }
    var changes: ChangeCounter { records.changes }
    var layout: ChunkLayout { store.layout }

    /// The plaintext length in bytes.
    var length: UInt64 { lengths.current }

    /// The length in a sealed header if the backing file is longer, else `.max`. Reads past it are errors.
    package var authenticLength: UInt64 { lengths.authentic }

    /// True if the backing file is longer than its sealed header says. The kernel's page cache must not fill in the
    /// rest with zeros.
    package var hasUnsealedTail: Bool { authenticLength < length }

    /// True while the log has changes not yet in place.
    var isLogged: Bool { !records.log.isEmpty }

    /// True while a handle has the file open, so that a close is still to come.
    var isBusy: Bool { openHandles.load(ordering: .acquiring) > 0 }

    /// False from `forgetKeys` until `restoreKeys`.
    var hasKeys: Bool { !keys.isForgotten }

    /// Runs `body`, a read for a request, and counts damage once, although parts and retries may meet it again.
    @inline(__always)
    func countingDamage<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        do throws(StoreError) { return try body() } catch {
            if case .damaged = error { store.counters.damagedReads.count() }
            throw error
        }
    }
}

/// The backing file's attributes, which writes of its header and checkpoints change and restore.
extension FileParts {
    /// Runs `body`, which writes to the backing file, then restores its attributes. Until then programs see the former
    /// ones.
    /// - Parameters:
    ///   - writer: of the backing file.
    ///   - before: the attributes to restore. Nil for the current ones.
    ///   - body: gets them.
    func keepingAttributes(
        _ writer: Descriptor, _ before: stat? = nil, _ body: (stat) throws(StoreError) -> Void
    ) throws(StoreError) {
        try attributes.lock.withLock { (_) throws(StoreError) in
            let before = if let before { before } else { records.log.shownStatus(try writer.status()) }
            let capability = BackingAttributes.capability(of: writer)
            let notify = attributes.onHiddenWrite.current
            notify?((before, nil))
            defer { notify?((before, (try? writer.status()) ?? before)) }
            try body(before)
            // Another thread may have logged a change meanwhile.
            let shown = records.log.shownStatus(before)
            do throws(StoreError) { try BackingAttributes.restore(writer, shown, capability) } catch {
                // An unlinked file's attributes need not last, and a store that goes by names cannot set them.
                guard writer.hasNoName else { throw error }
            }
        }
    }

    /// Runs `body`, which changes the backing file's mode, owner, times or attributes, and excludes seals meanwhile,
    /// because a seal would restore the old ones.
    /// - Throws: the error of `body`.
    package func excludingHiddenWrites<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        try attributes.lock.withLock { (_) throws(StoreError) -> Result in try body() }
    }

    /// Changes the backing file's attributes except the length, inside `excludingHiddenWrites`. While the log has
    /// changes of the file, the modification time waits there (`FileLog.setTime`).
    /// - Parameter pinned: any descriptor of the backing file.
    /// - Throws: `.system` with errno.
    package func apply(_ changes: AttributeChanges, to pinned: Descriptor) throws(StoreError) {
        guard let time = changes.modificationTime, isLogged else { return try changes.apply(to: pinned, kind: S_IFREG) }
        // Check the right to set it, and change ctime.
        var others = changes
        others.modificationTime = try pinned.status().st_mtim
        try others.apply(to: pinned, kind: S_IFREG)
        let isNow = time.tv_nsec == Int(linux_UTIME_NOW)
        let resolved = isNow ? timespec(nanoseconds: UInt64(clamping: nanoseconds(of: CLOCK_REALTIME))) : time
        if !records.log.setTime(resolved) { try changes.apply(to: pinned, kind: S_IFREG) }
    }

    /// Runs `body`, which reads the backing file's attributes, while neither a seal nor a checkpoint is running,
    /// because both take some away for a while. Returns nil at once if one is running.
    /// - Throws: the error of `body`.
    package func unlessHiddenWrite<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result? {
        try attributes.lock.withLockIfAvailable { (_) throws(StoreError) -> Result in try body() }
    }
}
