internal import FileSystem
package import Glibc
package import LinuxSystem
package import Synchronization
package import VaultFormat

/// One open file of a vault: plaintext offsets in, ciphertext on disk. All handles of the file share it.
///
/// Reads take no lock. A record that does not verify while a writer was at work is read again. Every change of chunks,
/// length or header holds `writing`, which is taken before any lock of the log, the cache or the sealer.
package final class EncryptedFile: Sendable {
    struct WriteState {
        var header: FileHeader
        /// The descriptor for writing. Opened for the first writer.
        var writer: Descriptor?
        /// Counts the changes of length, so that a seal notices one since it synced the data.
        var lengthChanges: UInt64 = 0
        /// The last chunk, if it is a partial one that may be durable. Nothing is written behind it before the log has made
        /// its successor durable.
        var durableTail: UInt64?
        /// The entry that has replaced the durable tail. 0 if none has.
        var tailSequence: UInt64 = 0
        /// Backing offset up to which space is allocated.
        var reserved: UInt64 = 0
        /// True if a program has allocated space behind the end, which stays.
        var isAllocatedAhead = false
        /// Bytes of new chunks that were logged since the last sync.
        var loggedGrowth = 0
        /// The durable length that the header will have when a sync has covered it. Nil if no sync was asked for.
        var awaitedLength: UInt64?
        /// Bytes that were logged since the log has the file's length.
        var loggedBytes = 0
        /// Of the backing file when `header` was read. Nil if no other process writes it.
        var stamp: FileStamp?
        /// Of the log's changes that were adopted then.
        var logNumber = 0
    }

    struct Synced {
        /// Number of writes to the backing file that are durable.
        var writes: UInt64 = 0
        /// Number of failed syncs since which the data was written again.
        var settledFailures = 0
    }

    /// The file's name in the block cache.
    let token: UInt64
    package let fileID: UInt64
    package let keys: FileKeys
    let store: Store
    package let reader: Descriptor
    let changes = ChangeCounter()
    let writing: Mutex<WriteState>
    /// The plaintext length by the backing size.
    let currentLength: Atomic<UInt64>
    /// As `authenticLength`.
    let currentAuthenticLength: Atomic<UInt64>
    /// The header's class, for readers.
    let currentClass: Atomic<ProtectionClass>
    /// The header's sparse flag, for readers: an all-zero record reads as zeros.
    let isSparse: Atomic<Bool>
    /// Changes in the log that are not in place.
    let logged = Mutex(Logged())
    let hasLoggedChanges = Atomic<Bool>(false)
    /// True if chunks were lost with the log since the file was opened.
    let hasLostChunks = Atomic<Bool>(false)
    /// Held while the backing file's attributes are changed, or kept while it is written.
    let attributes = Mutex<Void>(())
    /// Counts the checkpoints that have put changes in place.
    let checkpoints = Atomic<Int>(0)
    /// Time of the last logged change, in nanoseconds since 1970, if the backing file's times may be older. Else 0.
    let loggedTime = Atomic<UInt64>(0)
    /// Counts the writes to the backing file. Each is counted when it has been made.
    let backingWrites: Atomic<UInt64>
    /// Held during a sync, so that nobody returns before it is over.
    let synced = Mutex(Synced())
    /// Number of syncs of the backing file that have failed, also those of a checkpoint. The kernel may have dropped what it could
    /// not write, and returns the error only once, so another sync proves nothing.
    let failedBackingSyncs = Atomic<Int>(0)
    /// The header that was written last, as bytes. Nil if none was. Held while a header is written.
    let writtenHeader = Mutex<[UInt8]?>(nil)
    /// Time of the last check for changes by another machine, in milliseconds of CLOCK_MONOTONIC.
    let lastCheck = Atomic<Int>(0)
    /// Number of open handles of programs. The sealer's reference is not counted.
    package let openHandles = Atomic<Int>(0)
    /// True since the file was cut to the length that its header authenticates. No program asked for that, so the kernel
    /// still has the old size.
    package let isCutBack = Atomic<Bool>(false)
    /// Number of times that written data could not be made durable.
    package let failedSynchronizations = Atomic<Int>(0)
    /// Called around a write of the header that programs must not notice: before it with the backing file's stat(2),
    /// which programs must see until the second call, and after it, when the times are restored, with the new one.
    package let onSealing = Observer<(before: stat, after: stat?)>()

    var layout: ChunkLayout { store.layout }

    /// The plaintext length in bytes.
    package var length: UInt64 { currentLength.load(ordering: .acquiring) }

    /// The length in a sealed header if the backing file is longer, else `.max`. Reads past it are errors.
    package var authenticLength: UInt64 { currentAuthenticLength.load(ordering: .acquiring) }

    /// True if the backing file is longer than its sealed header says. The kernel's page cache must not fill in the
    /// rest with zeros.
    package var hasUnsealedTail: Bool { authenticLength < length }

    /// The header's seal counter.
    var sealCounter: UInt64 { writing.withLock { $0.header.sealCounter } }

    /// The length in a sealed header that the file is shorter than. Nil if it is not.
    var missedLength: UInt64? {
        let header = writing.withLock { $0.header }
        return header.isSealed && length < header.length ? header.length : nil
    }

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
        currentAuthenticLength = Atomic(header.authenticLength(of: length))
        isSparse = Atomic(header.isSparse)
        backingWrites = Atomic(header.isSealed ? 0 : 1)
        writing = Mutex(
            WriteState(header: header, writer: writer, durableTail: isNew ? nil : store.layout.partialChunk(of: length))
        )
    }

    /// Opens a file without any check of its length.
    convenience init(_ descriptor: Descriptor, writer: Descriptor? = nil, in store: Store) throws(StoreError) {
        let (header, keys, backingSize) = try Self.readHeader(of: descriptor, keyRing: store.keyRing)
        self.init(
            store: store, reader: descriptor, writer: writer, header: header, keys: keys,
            length: store.layout.plaintextLength(ofBackingSize: backingSize))
    }

    /// Opens a backing file: authenticates its header and checks the sealed length.
    /// - Parameter descriptor: of a regular file, open for reading.
    /// - Throws: `.damaged` if the header does not authenticate, or if the file is under 128 bytes or shorter than sealed.
    package static func open(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        guard let completion = store.completion, completion.isActive else {
            return try open(descriptor, in: store, cutsTornTail: store.followsUncleanEnd)
        }
        return try completion.proving(descriptor) { (mustLook) throws(StoreError) in
            try open(descriptor, in: store, cutsTornTail: mustLook)
        }
    }

    static func open(
        _ descriptor: Descriptor, in store: Store, cutsTornTail: Bool
    ) throws(StoreError) -> EncryptedFile {
        try retryingDamage(in: store, reader: descriptor) { () throws(StoreError) in
            let file = try EncryptedFile(descriptor, in: store)
            if let known = store.log.file(file.fileID), known.isSameFile(as: descriptor) { return known }
            file.adoptLoggedChanges()
            if let sealed = file.missedLength {
                guard store.readsCutFiles else { throw .damaged("sealed at \(sealed) bytes, \(file.length) are there") }
                file.currentLength.store(sealed, ordering: .releasing)
            }
            if cutsTornTail { try file.cutTornTail() }
            return file
        }
    }

    private func isSameFile(as descriptor: Descriptor) -> Bool {
        guard let own = try? reader.status(), let other = try? descriptor.status() else { return false }
        return FileIdentity(own) == FileIdentity(other)
    }

    /// Opens a backing file and truncates it to nothing. Its length may be anything, and so may a header under 128 bytes.
    /// - Parameter descriptor: open for reading and writing.
    package static func openTruncated(
        _ descriptor: Descriptor, class parentClass: ProtectionClass, in store: Store
    ) throws(StoreError) -> EncryptedFile {
        try proving(descriptor, in: store) { () throws(StoreError) in
            guard try descriptor.status().st_size >= off_t(ChunkLayout.headerSize) else {
                return try makeFile(in: descriptor, class: parentClass, in: store)
            }
            let file = try EncryptedFile(descriptor, writer: descriptor, in: store)
            try file.removeContent()
            return file
        }
    }

    /// Writes the header of a new, empty file. The descriptor is open for reading and writing.
    package static func create(
        in descriptor: Descriptor, class protectionClass: ProtectionClass, store: Store
    ) throws(StoreError) -> EncryptedFile {
        try proving(descriptor, in: store) { () throws(StoreError) in
            try makeFile(in: descriptor, class: protectionClass, in: store)
        }
    }

    /// Runs `body`, which writes the file's content anew. After an unclean end nobody looks for a torn tail then.
    private static func proving(
        _ descriptor: Descriptor, in store: Store, _ body: () throws(StoreError) -> EncryptedFile
    ) throws(StoreError) -> EncryptedFile {
        guard let completion = store.completion, completion.isActive else { return try body() }
        return try completion.proving(descriptor) { (_) throws(StoreError) in try body() }
    }

    private static func makeFile(
        in descriptor: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) -> EncryptedFile {
        let (header, keys) = try store.keyRing.makeHeader(protectionClass)
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        try descriptor.write(bytes, at: 0)
        let file = EncryptedFile(
            store: store, reader: descriptor, writer: descriptor, header: header, keys: keys, length: 0, isNew: true)
        file.writtenHeader.withLock { $0 = bytes }
        return file
    }

    /// True if the header, which is not authenticated here, is not that of a sealed file of the backing file's size.
    static func mayHaveTornTail(_ descriptor: Descriptor, _ layout: ChunkLayout) throws(StoreError) -> Bool {
        let size = try descriptor.status().st_size
        let bytes = try descriptor.read(at: 0, count: FileHeader.size)
        guard bytes.count == FileHeader.size, let header = try? FileHeader.parse(bytes, epochs: .first) else {
            return true
        }
        return !header.isSealed || layout.backingSize(ofPlaintextLength: header.length) != UInt64(clamping: size)
    }

    /// Reads and authenticates the header. Also returns the backing size.
    static func readHeader(
        of descriptor: Descriptor, keyRing: KeyRing
    ) throws(StoreError) -> (FileHeader, FileKeys, UInt64) {
        let status = try descriptor.status()
        guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        guard status.st_size >= off_t(ChunkLayout.headerSize) else {
            throw .damaged("header: \(status.st_size) bytes where 128 are needed")
        }
        let bytes = try descriptor.read(at: 0, count: FileHeader.size)
        guard bytes.count == FileHeader.size else { throw .damaged("header: cut short") }
        let (header, keys) = try keyRing.openHeader(bytes)
        return (header, keys, UInt64(status.st_size))
    }

    /// The file id in the header, not authenticated: 8 bytes at 8, little-endian (FileFormat, File header).
    static func unprovenFileID(of descriptor: Descriptor) throws(StoreError) -> UInt64 {
        try start(of: descriptor)[8...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }

    /// The header's first 16 bytes, not authenticated. Filled up with zeros if the file is shorter.
    static func start(of descriptor: Descriptor) throws(StoreError) -> [UInt8] {
        let start = try descriptor.read(at: 0, count: 16)
        return start + [UInt8](repeating: 0, count: 16 - start.count)
    }

    /// Makes sure that there is a descriptor for writing.
    /// - Parameter evenIfClosed: as for `writer`.
    package func prepareForWriting(evenIfClosed: Bool = false) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in _ = try writer(&state, evenIfClosed: evenIfClosed) }
    }

    /// The descriptor for writing. The first writer of a file that is longer than sealed cuts it back.
    /// - Parameter evenIfClosed: also if the mode denies writing to its owner, this process's user. No program writes
    ///   with the descriptor.
    func writer(_ state: inout WriteState, evenIfClosed: Bool = false) throws(StoreError) -> Descriptor {
        try store.admitChange()
        if let writer = state.writer { return writer }
        let writer = evenIfClosed ? try reader.reopenedForWriting() : try reader.reopened(flags: O_RDWR)
        // Before anything can be written behind the sealed length. If this fails, the next caller tries again.
        if hasUnsealedTail {
            try cutBack(&state, writer)
            isCutBack.store(true, ordering: .releasing)
        }
        state.writer = writer
        return writer
    }

    /// The descriptor for writing if there is one, else the one for reading. For metadata.
    package var anyDescriptor: Descriptor { writing.withLock { $0.writer } ?? reader }

    /// fsync(2) or fdatasync(2): earlier writes are durable, in place or in the log.
    package func synchronize(dataOnly: Bool) throws(StoreError) {
        let descriptor = writing.withLock { state in
            state.durableTail = layout.partialChunk(of: length)
            state.loggedGrowth = 0
            return state.writer ?? reader
        }
        do throws(StoreError) {
            try synchronizeBacking(descriptor, dataOnly: dataOnly)
            let sequence = lastLoggedSequence
            if sequence > 0 {
                try store.log.synchronize(through: sequence)
                // Readers on other machines see only what is in place.
                if store.isShared { try store.log.checkpoint() }
            }
        } catch {
            // fsync(2) reports an error only once for a descriptor. All handles of the file must report it.
            failedSynchronizations.add(1, ordering: .acquiringAndReleasing)
            throw error
        }
    }

    /// Counts a write to the backing file, which has been made. The next sync covers it.
    func noteBackingWrite() { backingWrites.add(1, ordering: .acquiringAndReleasing) }
}

/// Keys and the protection class.
extension EncryptedFile {
    /// False from `forgetKeys` until `restoreKeys`.
    package var hasKeys: Bool { !keys.isForgotten }

    /// Wipes the keys of a file that stays open. Waits for a writer or a seal at work.
    package func forgetKeys() { writing.withLock { _ in keys.forget() } }

    /// Derives the keys again from the header on disk. Its secret is the same as before, or does not authenticate.
    /// - Throws: `.locked` while the class key is forgotten; `.damaged`.
    package func restoreKeys() throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            if hasKeys { return }
            let (header, fresh, _) = try Self.readHeader(of: reader, keyRing: store.keyRing)
            guard header.fileID == fileID else { throw .damaged("header: of another file") }
            keys.refill(from: fresh)
        }
    }

    /// The class whose key wraps the file secret.
    package var protectionClass: ProtectionClass { currentClass.load(ordering: .acquiring) }

    /// Wraps the file secret under another class's key with one write of the header, durable on return. Chunks, seal
    /// and times stay (FileFormat, File header). Writes nothing if the file has that class.
    /// - Throws: `EROFS`; `.damaged` if the class key does not open the wrap. Also throws if the new header cannot be
    ///   made durable. Then the file has the new class.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        let isChanged = try writing.withLock { (state) throws(StoreError) -> Bool in
            if state.header.protectionClass == newClass { return false }
            // Not `writer`: the file is not opened for writing, so it must be neither cut back nor sealed.
            let writer = if let writer = state.writer { writer } else { try reader.reopened(flags: O_RDWR) }
            let rewrapped = try rewrapped(state.header, as: newClass)
            try keepingAttributes(writer) { (_) throws(StoreError) in
                try writeHeader(&state, writer) { $0 = rewrapped }
                currentClass.store(newClass, ordering: .releasing)
            }
            return true
        }
        // Not under the lock, so that programs can write.
        if isChanged { try synchronize(dataOnly: true) }
    }

    private func rewrapped(_ header: FileHeader, as newClass: ProtectionClass) throws(StoreError) -> FileHeader {
        let oldCipher = try store.keyRing.classCipher(header.protectionClass, epoch: header.epoch)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: header.epoch)
        return try StoreError.ofFormat(header.rewrapped(as: newClass, from: oldCipher, to: newCipher, keys: keys))
    }
}

extension FileHeader {
    /// As `EncryptedFile.authenticLength`, for a file of `length` bytes of plaintext.
    func authenticLength(of length: UInt64) -> UInt64 { isSealed && self.length < length ? self.length : .max }
}
