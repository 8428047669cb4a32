internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
package import Synchronization
internal import VaultCrypto
internal import VaultFormat

/// The parts of an open file for any thread, without the write lock. Each has a lock of its own, or is atomic.
package final class FileParts: Sendable {
    let store: Store
    let layout: ChunkLayout
    let counters: Counters
    let keys: FileKeys
    let reader: Descriptor
    /// The file's name in the block cache.
    let token: UInt64
    package let log = FileLog()
    package let syncs: FileSyncs
    package let attributes = BackingAttributes()
    let changes = ChangeCounter()
    /// Counts the cuts of the file. After a cut the log forgets the removed records, but older ones are still in place.
    let cuts = ChangeCounter()
    /// The header's sparse flag: an all-zero record reads as zeros.
    let isSparse: Atomic<Bool>
    /// The header's class, whose key wraps the file secret.
    let protectionClass: Atomic<ProtectionClass>
    private let currentID, currentLength, currentAuthenticLength: Atomic<UInt64>
    /// The length by the backing size, if a read-only store ends the file earlier. Otherwise 0.
    let storedLength = Atomic<UInt64>(0)
    /// True since the file was cut to its sealed length, or its torn tail was cut off. The kernel still has the old
    /// size, because the cut was not a program's request.
    package let isCutBack = Atomic<Bool>(false)
    /// Time of the last check for changes by another machine, in milliseconds of CLOCK_MONOTONIC.
    let lastCheck = Atomic<Int>(0)
    /// Number of open handles of programs. The sealer's reference is not counted.
    package let openHandles = Atomic<Int>(0)

    init(store: Store, _ reader: Descriptor, _ header: FileHeader, _ keys: FileKeys, length: UInt64) {
        (self.store, layout, counters, token) = (store, store.layout, store.counters, store.makeToken())
        (self.reader, self.keys) = (reader, keys)
        isSparse = Atomic(header.isSparse)
        protectionClass = Atomic(header.protectionClass)
        currentID = Atomic(header.fileID)
        currentLength = Atomic(length)
        currentAuthenticLength = Atomic(header.authenticLength(of: length))
        syncs = FileSyncs(hasUnknownWrites: !header.isSealed)
    }

    /// Adopts the current header. Called by the file's writer.
    func setHeader(_ header: FileHeader) {
        currentID.store(header.fileID, ordering: .releasing)
        isSparse.store(header.isSparse, ordering: .releasing)
        protectionClass.store(header.protectionClass, ordering: .releasing)
    }

    /// Changes once at most, before the log has an entry of the file (`replaceSharedID`).
    var fileID: UInt64 { currentID.load(ordering: .acquiring) }

    /// The plaintext length in bytes: from the backing file's size or, while the log has an exact length, from the log.
    /// Readers need no lock, but a change needs the file's write lock.
    var length: UInt64 {
        get { currentLength.load(ordering: .acquiring) }
        set { currentLength.store(newValue, ordering: .releasing) }
    }

    /// The length in a sealed header if the backing file is longer, else `.max`. Reads past it are errors.
    package internal(set) var authenticLength: UInt64 {
        get { currentAuthenticLength.load(ordering: .acquiring) }
        set { currentAuthenticLength.store(newValue, ordering: .releasing) }
    }

    /// Sets both lengths, the authentic one by a header that was read.
    func setLength(_ newLength: UInt64, by header: FileHeader) {
        length = newLength
        authenticLength = header.authenticLength(of: newLength)
    }

    /// Returns the reason of an error about a file that is shorter or longer than its sealed header says.
    package static func wrongLength(_ length: UInt64, expected: UInt64) -> String {
        "it should be \(expected) bytes long, \(length) are there"
    }

    /// True if the backing file is longer than its sealed header says. The kernel's page cache must not fill in the
    /// rest with zeros.
    package var hasUnsealedTail: Bool { authenticLength < length }

    /// True while the log has changes not yet in place.
    var isLogged: Bool { !log.isEmpty }

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

extension FileHeader {
    /// The same as `FileParts.authenticLength`, for a file of `length` bytes of plaintext.
    fileprivate func authenticLength(of length: UInt64) -> UInt64 {
        isSealed && self.length < length ? self.length : .max
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
            let before = if let before { before } else { log.shownStatus(try writer.status()) }
            let capability = BackingAttributes.capability(of: writer)
            let notify = attributes.onHiddenWrite.current
            notify?((before, nil))
            defer { notify?((before, (try? writer.status()) ?? before)) }
            do throws(StoreError) { try body(before) } catch {
                // Not the times, because a sync client must not find the last time before the last content.
                if var now = try? writer.status() {
                    now.st_mode = before.st_mode
                    try? BackingAttributes.restore(writer, now, capability)
                }
                throw error
            }
            // Another thread may have logged a change meanwhile.
            let shown = log.shownStatus(before)
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
        if !log.setTime(resolved) { try changes.apply(to: pinned, kind: S_IFREG) }
    }

    /// Runs `body`, which reads the backing file's attributes, while neither a seal nor a checkpoint is running,
    /// because both take some away for a while. Returns nil at once if one is running.
    /// - Throws: the error of `body`.
    package func unlessHiddenWrite<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result? {
        try attributes.lock.withLockIfAvailable { (_) throws(StoreError) -> Result in try body() }
    }

    // MARK: Records. A run of them is in place or in the log. The caller decides about one that does not verify.

    /// Reads the records of adjacent chunks. Returns the number of bytes in place. Fills the rest so that these records
    /// neither verify nor look like holes.
    @discardableResult
    func readRecords(_ first: UInt64, into records: UnsafeMutableRawBufferPointer) throws(StoreError) -> Int {
        try counters.storeTime.time { () throws(StoreError) in
            try log.readBeside(first, records, layout) { () throws(StoreError) in
                let stored = try reader.read(at: layout.recordOffset(ofChunk: first), into: records)
                counters.ciphertextBytesRead.count(stored)
                if stored < records.count { records.slice(stored...).fill(with: 0xFF) }
                return stored
            }
        }
    }

    /// Reads the record of a chunk with `size` bytes of plaintext.
    func readRecord(_ chunk: UInt64, size: Int, _ workspace: Workspace) throws(StoreError) -> UnsafeRawBufferPointer {
        let record = workspace.records.slice(..<(size + ChunkLayout.recordOverhead))
        try readRecords(chunk, into: record)
        return UnsafeRawBufferPointer(record)
    }

    /// Decrypts adjacent records. Returns the number of chunks before the first that does not verify.
    @inline(__always)
    func decrypt(
        _ records: UnsafeRawBufferPointer, first: UInt64, into plaintext: UnsafeMutableRawBufferPointer,
        _ cipher: ChunkCipher
    ) throws(StoreError) -> Int {
        do throws(CryptoError) {
            return try cipher.decrypt(
                records, firstChunkIndex: first, chunkSize: layout.chunkSize, keys: keys.chunk, into: plaintext)
        } catch { throw StoreError(error) }
    }

    /// Encrypts adjacent chunks.
    /// - Parameter entry: a buffer like `Workspace.logEntry`, for the records.
    func encrypt(
        _ plaintext: UnsafeRawBufferPointer, first: UInt64, into entry: UnsafeMutableRawBufferPointer,
        _ cipher: ChunkCipher
    ) throws(StoreError) {
        let chunks = (plaintext.count + layout.chunkSize - 1) / layout.chunkSize
        let records = Workspace.records(of: entry).slice(..<(plaintext.count + chunks * ChunkLayout.recordOverhead))
        try counters.cryptoTime.time { () throws(StoreError) in
            try StoreError.ofCrypto { () throws(CryptoError) in
                try cipher.encrypt(
                    plaintext, firstChunkIndex: first, chunkSize: layout.chunkSize, keys: keys.chunk, into: records)
            }
        }
    }
}
