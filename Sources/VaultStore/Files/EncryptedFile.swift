internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
package import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// One open file of a vault: plaintext offsets in, ciphertext on disk. All that have it open share it.
///
/// Reads take no lock: a record that does not verify while a writer was at work is read again. Whatever changes chunks,
/// length or header holds `writing`, which is taken before any lock of the journal, the cache or the sealer.
package final class EncryptedFile: Sendable {
    struct WriteState {
        var header: FileHeader
        /// The descriptor that can write, once somebody needed it.
        var writer: Descriptor?
        /// Moves with every change of length, so that a seal knows whether what it synced is still all there is.
        var lengthChanges: UInt64 = 0
        /// Unsealed when opened: the last record may be a torn one.
        var lastRecordIsUnproven: Bool
        /// Of the backing file when `header` was read; nil where nobody else writes it.
        var stamp: FileStamp?
    }

    /// Names this open file in the block cache.
    let token: UInt64
    package let fileID: UInt64
    package let keys: FileKeys
    let store: Store
    package let reader: Descriptor
    let changes = ChangeCounter()
    let writing: Mutex<WriteState>
    /// The plaintext length by the backing size.
    let currentLength: Atomic<UInt64>
    /// How much of it a sealed header vouches for; `.max` where it vouches for all there is.
    let currentAuthenticLength: Atomic<UInt64>
    /// The header's class, for whoever does not write.
    let currentClass: Atomic<ProtectionClass>
    /// The header's sparse flag, for readers: an all-zero record reads as zeros.
    let isSparse: Atomic<Bool>
    /// CLOCK_MONOTONIC in milliseconds of the last look at what another machine has made of it.
    let lastCheck = Atomic<Int>(0)
    /// How many handles of programs hold the file; the sealer's hold does not count.
    package let openHandles = Atomic<Int>(0)
    /// How often written data could not be made durable.
    package let failedSynchronizations = Atomic<Int>(0)
    /// Told before the header is written for our own sake, with what stat(2) gives of the backing file: programs are to see
    /// that until it is told, again with what it gives then, that the times have been put back.
    package let onSealing = Mutex<(@Sendable (_ before: stat, _ after: stat?) -> Void)?>(nil)

    var layout: ChunkLayout { store.layout }

    /// The plaintext length in bytes.
    package var length: UInt64 { currentLength.load(ordering: .acquiring) }

    /// True where the backing file is longer than its sealed header says: reads past that are errors, and must not be
    /// made up by the kernel's page cache.
    package var hasUnsealedTail: Bool { currentAuthenticLength.load(ordering: .acquiring) < length }

    /// The length in a sealed header if the backing file is longer, else `.max`. Reads past it are errors.
    package var authenticLength: UInt64 { currentAuthenticLength.load(ordering: .acquiring) }

    init(
        store: Store, reader: Descriptor, writer: Descriptor?, header: FileHeader, keys: FileKeys, length: UInt64,
        isNew: Bool = false
    ) {
        self.store = store
        self.reader = reader
        self.keys = keys
        token = store.makeToken()
        fileID = header.fileID
        currentClass = Atomic(header.protectionClass)
        currentLength = Atomic(length)
        currentAuthenticLength = Atomic(header.isSealed && header.length < length ? header.length : .max)
        isSparse = Atomic(header.isSparse)
        writing = Mutex(WriteState(header: header, writer: writer, lastRecordIsUnproven: !header.isSealed && !isNew))
    }

    deinit {
        // Without a name it is gone now, and while it was open its slots may have been its records.
        if !store.isReadOnly, store.journal.isHoldingRecords, let status = try? reader.status(), status.st_nlink == 0 {
            store.forgetSlots(of: fileID)
        }
    }

    /// Opens a backing file: authenticates its header and checks the sealed length.
    /// - Parameter descriptor: of a regular file, open for reading.
    /// - Throws: `.damaged` for a header that does not authenticate, a file under 128 bytes, one shorter than sealed.
    package static func open(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        try retryingDamage(in: store, reader: descriptor) { () throws(StoreError) in try openOnce(descriptor, in: store)
        }
    }

    private static func openOnce(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        let (header, keys, backingSize) = try readHeader(of: descriptor, keyRing: store.keyRing)
        var length = store.layout.plaintextLength(ofBackingSize: backingSize)
        if header.isSealed && length < header.length {
            guard store.readsCutFiles else {
                throw .damaged("sealed at \(header.length) bytes, \(length) are there")
            }
            length = header.length
        }
        let file = EncryptedFile(
            store: store, reader: descriptor, writer: nil, header: header, keys: keys, length: length)
        try file.recoverFromJournal()
        return file
    }

    /// Opens a backing file only to cut it to nothing: its length may be anything, its header too.
    /// - Parameter descriptor: open for reading and writing.
    package static func openTruncated(
        _ descriptor: Descriptor, class parentClass: ProtectionClass, in store: Store
    ) throws(StoreError) -> EncryptedFile {
        if try descriptor.status().st_size >= off_t(ChunkLayout.headerSize) {
            let (header, keys, backingSize) = try readHeader(of: descriptor, keyRing: store.keyRing)
            let file = EncryptedFile(
                store: store, reader: descriptor, writer: descriptor, header: header, keys: keys,
                length: store.layout.plaintextLength(ofBackingSize: backingSize))
            try file.removeContent()
            return file
        }
        guard let completion = store.completion else {
            return try create(in: descriptor, class: parentClass, store: store)
        }
        let made = try completion.excludingOthers { () throws(StoreError) -> EncryptedFile? in
            // Another thread may have completed the file meanwhile.
            guard try descriptor.status().st_size < off_t(ChunkLayout.headerSize) else { return nil }
            return try create(in: descriptor, class: parentClass, store: store)
        }
        if let made { return made }
        return try openTruncated(descriptor, class: parentClass, in: store)
    }

    /// Writes the header of a new, empty file. The descriptor is open for reading and writing.
    package static func create(
        in descriptor: Descriptor, class protectionClass: ProtectionClass, store: Store
    ) throws(StoreError) -> EncryptedFile {
        do {
            let cipher = try store.keyRing.classCipher(protectionClass)
            let made = try FileHeader.make(
                protectionClass, epoch: store.keyRing.epochs.current, classCipher: cipher, vault: store.keyRing.vault)
            let bytes = try made.header.serialized(keys: made.keys)
            try bytes.withBytes { (bytes) throws(StoreError) in try descriptor.write(bytes, at: 0) }
            return EncryptedFile(
                store: store, reader: descriptor, writer: descriptor, header: made.header, keys: made.keys, length: 0,
                isNew: true)
        } catch let error as FormatError {
            throw StoreError(error)
        } catch let error as StoreError {
            throw error
        } catch {
            preconditionFailure("internal error: untyped error")
        }
    }

    static func readHeader(
        of descriptor: Descriptor, keyRing: KeyRing
    ) throws(StoreError) -> (FileHeader, FileKeys, UInt64) {
        let status = try descriptor.status()
        guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        guard status.st_size >= off_t(ChunkLayout.headerSize) else {
            throw .damaged("header: \(status.st_size) bytes where 128 are needed")
        }
        let (header, keys) = try withUnsafeTemporaryBytes(ChunkLayout.headerSize) {
            (bytes) throws(StoreError) -> (FileHeader, FileKeys) in
            guard try descriptor.read(at: 0, into: bytes) == bytes.count else { throw .damaged("header: cut short") }
            return try parseHeader(UnsafeRawBufferPointer(bytes), keyRing: keyRing)
        }
        return (header, keys, UInt64(status.st_size))
    }

    /// The file id as the header spells it, authentic or not: 8 bytes at 8, little-endian (FileFormat.md, "The header").
    static func unprovenFileID(of descriptor: Descriptor) throws(StoreError) -> UInt64 {
        try start(of: descriptor)[8...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }

    /// The header's first 16 bytes as they are; zeros where there are fewer.
    static func start(of descriptor: Descriptor) throws(StoreError) -> [UInt8] {
        var start = [UInt8](repeating: 0, count: 16)
        _ = try start.withMutableBytes { (bytes) throws(StoreError) in try descriptor.read(at: 0, into: bytes) }
        return start
    }

    /// A header's 128 bytes, authenticated.
    static func parseHeader(
        _ bytes: UnsafeRawBufferPointer, keyRing: KeyRing
    ) throws(StoreError) -> (FileHeader, FileKeys) {
        let header: FileHeader
        do throws(FormatError) { header = try FileHeader.parse(bytes, epochs: keyRing.epochs) } catch {
            throw StoreError(error)
        }
        let cipher = try keyRing.classCipher(header.protectionClass, epoch: header.epoch)
        do throws(FormatError) {
            return (header, try header.openKeys(classCipher: cipher, vault: keyRing.vault))
        } catch {
            throw StoreError(error)
        }
    }

    /// Makes sure that there is a descriptor to write with.
    /// - Parameter evenIfClosed: as for `writer`.
    package func prepareForWriting(evenIfClosed: Bool = false) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in _ = try writer(&state, evenIfClosed: evenIfClosed) }
    }

    /// The descriptor that can write. The first writer of a file that is longer than sealed cuts it back.
    /// - Parameter evenIfClosed: also where its owner, who asks, has denied it to himself: no program will write with it.
    func writer(_ state: inout WriteState, evenIfClosed: Bool = false) throws(StoreError) -> Descriptor {
        try store.admitChange()
        if let writer = state.writer { return writer }
        let writer = evenIfClosed ? try reader.reopenedForWriting() : try reader.reopened(flags: O_RDWR)
        // Before anything can be written behind what the header vouches for, also by the next who asks.
        if hasUnsealedTail { try cutBack(&state, writer) }
        state.writer = writer
        return writer
    }

    /// The descriptor that can write, if anybody wrote, else the one that can read: for metadata.
    package var anyDescriptor: Descriptor {
        writing.withLock { $0.writer } ?? reader
    }

    /// fsync(2) or fdatasync(2) of the backing file: what was written before is durable.
    package func synchronize(dataOnly: Bool) throws(StoreError) {
        do throws(StoreError) {
            try anyDescriptor.synchronize(dataOnly: dataOnly)
        } catch {
            // The store tells one descriptor once, fsync(2); all who have the file open are to hear of it.
            failedSynchronizations.add(1, ordering: .acquiringAndReleasing)
            throw error
        }
    }
}
