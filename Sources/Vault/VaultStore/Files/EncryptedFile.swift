internal import FileSystem
internal import Glibc
package import LinuxSystem
package import Synchronization
package import VaultFormat

/// One open file of a vault: plaintext offsets in, ciphertext on disk. All handles of the file share it.
///
/// A record that does not verify while a writer was running is read again. Reads take `writing` only if writers disturb
/// them several times in succession. Every change of chunks, length or header holds it. It is taken before any lock of the
/// log or the cache.
package final class EncryptedFile: Sendable {
    let store: Store
    package let records: ChunkRecords
    package let lengths: FileLength
    package let syncs: FileSyncs
    package let attributes = BackingAttributes()
    let writing: Mutex<WriteState>
    /// Number of open handles of programs. The sealer's reference is not counted.
    package let openHandles = Atomic<Int>(0)

    package var fileID: UInt64 { records.fileID.load(ordering: .acquiring) }
    package var keys: FileKeys { records.keys }
    package var reader: Descriptor { records.reader }
    /// The file's name in the block cache.
    package var token: UInt64 { records.token }
    var changes: ChangeCounter { records.changes }
    var layout: ChunkLayout { store.layout }

    /// The plaintext length in bytes.
    package var length: UInt64 { lengths.current }

    /// The length in a sealed header if the backing file is longer, else `.max`. Reads past it are errors.
    package var authenticLength: UInt64 { lengths.authentic }

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

    /// The reason of an error about a file that is shorter or longer than its sealed header says.
    package static func wrongLength(_ length: UInt64, expected: UInt64) -> String {
        "it should be \(expected) bytes long, \(length) are there"
    }

    init(
        store: Store, reader: Descriptor, writer: Descriptor?, header: FileHeader, keys: FileKeys, length: UInt64
    ) {
        self.store = store
        records = ChunkRecords(header, keys, reader, in: store)
        lengths = FileLength(length, header)
        syncs = FileSyncs(hasUnknownWrites: !header.isSealed)
        var state = WriteState(header)
        if let writer { state.open(writer, partialChunk: store.layout.partialChunk(of: length)) }
        writing = Mutex(state)
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
        try proving(descriptor, in: store) { (mustCheck) throws(StoreError) in
            try open(descriptor, in: store, cutsTornTail: mustCheck)
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
                guard store.readsCutFiles else { throw .damaged(wrongLength(file.length, expected: sealed)) }
                file.lengths.set(sealed)
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
    /// - Throws: `.locked` without the keys; `.damaged` for a header of 128 bytes that does not authenticate;
    ///   `.system` with errno.
    package static func openTruncated(
        _ descriptor: Descriptor, class parentClass: ProtectionClass, in store: Store
    ) throws(StoreError) -> EncryptedFile {
        try proving(descriptor, in: store) { (_) throws(StoreError) in
            guard try descriptor.status().st_size >= off_t(ChunkLayout.headerSize) else {
                return try makeFile(in: descriptor, class: parentClass, in: store)
            }
            let file = try EncryptedFile(descriptor, writer: descriptor, in: store)
            try file.removeContent()
            return file
        }
    }

    /// Writes the header of a new, empty file. The descriptor is open for reading and writing.
    /// - Throws: `.locked` without the keys; `.system` with errno.
    package static func create(
        in descriptor: Descriptor, class protectionClass: ProtectionClass, store: Store
    ) throws(StoreError) -> EncryptedFile {
        try proving(descriptor, in: store) { (_) throws(StoreError) in
            try makeFile(in: descriptor, class: protectionClass, in: store)
        }
    }

    /// Runs `body`, which cuts off a torn tail if it gets true, or writes the file's content anew. Nobody looks for one then.
    private static func proving(
        _ descriptor: Descriptor, in store: Store, _ body: (Bool) throws(StoreError) -> EncryptedFile
    ) throws(StoreError) -> EncryptedFile {
        guard let completion = store.completion, completion.isActive else { return try body(store.followsUncleanEnd) }
        return try completion.proving(descriptor, body)
    }

    private static func makeFile(
        in descriptor: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) -> EncryptedFile {
        let (header, keys) = try store.keyRing.makeHeader(protectionClass)
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        try descriptor.write(bytes, at: 0)
        let file = EncryptedFile(
            store: store, reader: descriptor, writer: descriptor, header: header, keys: keys, length: 0)
        file.syncs.writtenHeader.withLock { $0 = bytes }
        return file
    }

    /// True if the header, which is not authenticated here, is not that of a sealed file of the backing file's size.
    static func mayHaveTornTail(_ descriptor: Descriptor, _ layout: ChunkLayout) throws(StoreError) -> Bool {
        let status = try descriptor.status()
        descriptor.dropOldPages(status)
        let bytes = try descriptor.read(at: 0, count: FileHeader.size)
        guard bytes.count == FileHeader.size, let header = try? FileHeader.parse(bytes, epochs: .first) else {
            return true
        }
        return !header.isSealed
            || layout.backingSize(ofPlaintextLength: header.length) != UInt64(clamping: status.st_size)
    }

    /// Reads the header from the store and authenticates it. Also returns the backing size. Whatever is read of the
    /// file after it is no older.
    /// - Throws: `.damaged`; `.locked` if the key of its class is forgotten; `.system` with errno.
    package static func readHeader(
        of descriptor: Descriptor, keyRing: KeyRing
    ) throws(StoreError) -> (FileHeader, FileKeys, UInt64) {
        let status = try descriptor.status()
        guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        guard status.st_size >= off_t(ChunkLayout.headerSize) else {
            throw .damaged("header: \(status.st_size) bytes where 128 are needed")
        }
        descriptor.dropOldPages(status)
        let bytes = try descriptor.read(at: 0, count: FileHeader.size)
        guard bytes.count == FileHeader.size else { throw .damaged("header: cut short") }
        let (header, keys) = try keyRing.openHeader(bytes)
        return (header, keys, UInt64(status.st_size))
    }

    /// The file id in the header, not authenticated: 8 bytes at 8, little-endian (FileFormat, File header).
    package static func unprovenFileID(of descriptor: Descriptor) throws(StoreError) -> UInt64 {
        descriptor.dropOldPages(try descriptor.status())
        return try start(of: descriptor)[8...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }

    /// The header's first 16 bytes, not authenticated. Filled up with zeros if the file is shorter.
    /// - Throws: errno of pread(2).
    package static func start(of descriptor: Descriptor) throws(StoreError) -> [UInt8] {
        let start = try descriptor.read(at: 0, count: 16)
        return start + [UInt8](repeating: 0, count: 16 - start.count)
    }

    /// Makes sure that there is a descriptor for writing.
    /// - Parameter evenIfClosed: as for `writer`.
    /// - Throws: the error of `Store.admitChange`; `.system` with errno.
    package func prepareForWriting(evenIfClosed: Bool = false) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in _ = try writer(&state, evenIfClosed: evenIfClosed) }
    }

    /// The descriptor for writing. The first writer of a file that is longer than sealed cuts it back, and keeps what verifies.
    /// - Parameter evenIfClosed: also if the mode denies writing to its owner, this process's user. No program writes
    ///   with the descriptor.
    func writer(_ state: inout WriteState, evenIfClosed: Bool = false) throws(StoreError) -> Descriptor {
        try store.admitChange()
        if let writer = state.writer { return writer }
        let writer = evenIfClosed ? try reader.reopenedForWriting() : try reader.reopened(flags: O_RDWR)
        // Before anything can be written past the sealed length. If this fails, the next caller tries again.
        if hasUnsealedTail {
            try keepTail(past: authenticLength)
            try cutBack(&state, writer)
            lengths.isCutBack.store(true, ordering: .releasing)
        }
        if state.header.isLinked { try replaceSharedID(&state, writer) }
        state.open(writer, partialChunk: layout.partialChunk(of: length))
        return writer
    }

    /// The descriptor for writing if there is one, else the one for reading. For metadata.
    package var anyDescriptor: Descriptor { writing.withLock { $0.writer } ?? reader }

    /// fsync(2) or fdatasync(2): earlier writes are durable, in place or in the log.
    /// - Throws: `.system` with errno. All handles of the file report it then.
    package func synchronize(dataOnly: Bool) throws(StoreError) {
        let descriptor = writing.withLock { state in
            state.tail.beginSync(layout.partialChunk(of: length))
            state.loggedGrowth = 0
            return state.writer ?? reader
        }
        do throws(StoreError) {
            // Readers on other machines see only what is in place. A time that a program has set is not in the log. A
            // checkpoint that is running already sets it after its sync, so the file is synced after this.
            if isLogged && store.isShared || !dataOnly && records.log.hasSetTime {
                try store.log.checkpoint(.fsync(self))
            }
            try synchronizeBacking(descriptor, dataOnly: dataOnly)
            let sequence = records.log.lastSequence
            if sequence > 0 { try store.log.synchronize(through: sequence) }
        } catch {
            // fsync(2) reports an error only once for a descriptor. All handles of the file must report it.
            syncs.report()
            throw error
        }
    }
}

/// Keys and the protection class.
extension EncryptedFile {
    /// False from `forgetKeys` until `restoreKeys`.
    package var hasKeys: Bool { !keys.isForgotten }

    /// Wipes the keys of a file that stays open. Waits for a running writer or seal.
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
    package var protectionClass: ProtectionClass { records.protectionClass.load(ordering: .acquiring) }

    /// Wraps the file secret under another class's key with one write of the header, durable on return. Chunks, seal
    /// and times stay (FileFormat, File header). Writes nothing if the file has that class.
    /// - Throws: `EROFS`; `.damaged` if the class key does not open the wrap. Also throws if the new header cannot be
    ///   made durable. Then the file has the new class.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        // Not under the lock, so that programs can write.
        if try rewrap({ $0.protectionClass == newClass ? nil : newClass }) { try synchronize(dataOnly: true) }
    }

    /// Wraps the secret of a file that was made while the vault was locked under its class key, if it is not yet. Best effort: the
    /// file can be read all the same.
    package func replaceInboxWrap() {
        if store.isReadOnly || writing.withLock({ $0.header.ephemeralKey }) == nil { return }
        _ = try? rewrap { $0.ephemeralKey == nil ? nil : $0.protectionClass }
    }

    /// True if a file's header, not authenticated, says that it was made without its class's key. Needs no key.
    /// - Throws: `.system` with errno.
    package static func claimsInboxWrap(in directory: Descriptor, _ entry: Component) throws(StoreError) -> Bool {
        try start(of: try Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK))[6] == 1
    }

    /// Wraps the file secret under the key of a class, with one write of the header.
    /// - Parameter choose: returns the class. Nil to write nothing.
    /// - Returns: true if it was written.
    private func rewrap(_ choose: (FileHeader) -> ProtectionClass?) throws(StoreError) -> Bool {
        try writing.withLock { (state) throws(StoreError) -> Bool in
            guard let newClass = choose(state.header) else { return false }
            // Not `writer`: the file is not opened for writing, so it must be neither cut back nor sealed.
            let writer = if let writer = state.writer { writer } else { try reader.reopened(flags: O_RDWR) }
            let oldCipher = try store.keyRing.wrapCipher(of: state.header)
            let newCipher = try store.keyRing.classCipher(newClass, epoch: state.header.epoch)
            let header = try StoreError.ofFormat(
                state.header.rewrapped(as: newClass, from: oldCipher, to: newCipher, keys: keys))
            try writeHeader(&state, writer, isHidden: true) { $0 = header }
            return true
        }
    }
}

/// Files with several names. The log knows a file by its id. A copy of a vault that keeps no hard links (rsync without -H, Syncthing)
/// makes several files of such a file, all with its id (FileFormat, Header-8).
extension EncryptedFile {
    /// Marks the file in its header, before it gets a second name. Its times stay.
    /// - Throws: `EROFS`, and errors of writing the header.
    package func markLinked() throws(StoreError) {
        try store.admitChange()
        try writing.withLock { (state) throws(StoreError) in
            if state.header.isLinked { return }
            let writer = if let writer = state.writer { writer } else { try reader.reopenedForWriting() }
            try writeHeader(&state, writer, isHidden: true) { $0.isLinked = true }
        }
    }

    /// Gives a file that had several names and has one a new id, durably, before the log has an entry of it. Its secret, content
    /// and times stay.
    private func replaceSharedID(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        guard !isLogged, try writer.status().st_nlink == 1 else { return }
        let cipher = try store.keyRing.wrapCipher(of: state.header)
        let header = try StoreError.ofFormat(state.header.withNewID(classCipher: cipher))
        try writeHeader(&state, writer, isHidden: true) { $0 = header }
        do throws(StoreError) { try writer.synchronize(dataOnly: true) } catch {
            // The next sync writes the header again.
            countFailedBackingSync()
            throw error
        }
    }
}
