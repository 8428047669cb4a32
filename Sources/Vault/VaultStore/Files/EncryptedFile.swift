internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
package import VaultFormat

/// One open file of a vault: plaintext offsets in, ciphertext on disk. All handles of the file share it.
///
/// Any thread may use `parts`. All changes of programs go through `writing`.
package final class EncryptedFile: Sendable {
    package let parts: FileParts
    let writing: Mutex<FileWriter>

    package var fileID: UInt64 { parts.fileID }
    package var keys: FileKeys { parts.keys }
    package var reader: Descriptor { parts.reader }
    package var token: UInt64 { parts.token }
    package var length: UInt64 { parts.length }
    package var isLogged: Bool { parts.isLogged }
    package var isBusy: Bool { parts.isBusy }
    package var hasKeys: Bool { parts.hasKeys }
    var store: Store { parts.store }
    var layout: ChunkLayout { parts.layout }
    /// The file as one that another machine may be writing. Nil if none may.
    package var followed: FollowedFile? { store.followsWriter ? FollowedFile(file: self) : nil }

    // MARK: Opening

    init(
        store: Store, reader: Descriptor, writer: Descriptor?, header: FileHeader, keys: FileKeys, length: UInt64
    ) {
        parts = FileParts(store: store, reader, header, keys, length: length)
        writing = Mutex(FileWriter(parts, header))
        writing.withLock {
            $0.belong(to: self)
            if let writer { $0.open(writer) }
        }
    }

    /// Opens a file without any check of its length.
    convenience init(_ descriptor: Descriptor, writer: Descriptor? = nil, in store: Store) throws(StoreError) {
        let stored = try StoredHeader(of: descriptor, keyRing: store.keyRing)
        self.init(
            store: store, reader: descriptor, writer: writer, header: stored.header, keys: stored.keys,
            length: store.layout.plaintextLength(ofBackingSize: stored.backingSize))
    }

    // MARK: Reading

    /// Reads plaintext. Returns the number of bytes read, which is less than asked for only at the end of the file.
    /// - Parameter isAhead: true if `readAhead` may have put the range into the block cache. It need not stay there.
    /// - Throws: `.damaged` if a chunk of the range does not verify.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, isAhead: Bool = false,
        workspace: Workspace
    ) throws(StoreError) -> Int {
        let reading = FileReader(file: self)
        return try parts.countingDamage { () throws(StoreError) in
            guard let followed else {
                return try reading.read(at: plaintextOffset, into: buffer, isAhead: isAhead, mayCache: true, workspace)
            }
            return try followed.upToDate { () throws(StoreError) in
                try reading.read(at: plaintextOffset, into: buffer, isAhead: false, mayCache: false, workspace)
            }
        }
    }

    /// Decrypts at most one batch of chunks, from this offset on, into the block cache. Returns its end, or `.max` at
    /// the end of the file. Nil if another machine may change the file, or if the keys were wiped.
    /// - Throws: `.damaged`; `.locked` without the keys; `.system` with errno.
    package func readAhead(at plaintextOffset: UInt64, workspace: Workspace) throws(StoreError) -> UInt64? {
        guard followed == nil, hasKeys else { return nil }
        return try FileReader(file: self).readAhead(at: plaintextOffset, workspace)
    }

    /// Finds data or a hole, like lseek(2) with SEEK_DATA or SEEK_HOLE. Returns nil for ENXIO. Holes are reported in
    /// whole chunks.
    /// - Throws: `ESTALE`; `.system` with errno, also of a checkpoint.
    package func seek(from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64? {
        try followed?.upToDate { () throws(StoreError) in }
        return try SparseMap(parts: parts).seek(from: plaintextOffset, toHole: toHole)
    }

    // MARK: Changing

    /// Writes plaintext. Returns the number of bytes written, which is less than given only if the store took no more.
    /// After a crash every chunk is either old or new.
    /// - Throws: the error of `Store.admitChange`; `EFBIG`, and `.system` with errno, such as `ENOSPC`; `.damaged` if a
    ///   chunk that must be read first does not verify.
    package func write(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, workspace: Workspace
    ) throws(StoreError) -> Int {
        try writing.withLock { (writer) throws(StoreError) in try writer.write(data, at: plaintextOffset, workspace) }
    }

    /// ftruncate(2): sets the plaintext length.
    /// - Throws: as `write`.
    package func setLength(_ newLength: UInt64, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (writer) throws(StoreError) in try writer.truncate(to: newLength, workspace) }
    }

    /// fallocate(2) with PUNCH_HOLE|KEEP_SIZE: the range reads as zeros and its whole chunks take no space.
    /// - Throws: as `write`.
    package func punchHole(_ range: Range<UInt64>, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (writer) throws(StoreError) in try writer.punchHole(range, workspace) }
    }

    /// fallocate(2) with ZERO_RANGE: the range reads as zeros and has its space. The file may grow.
    /// - Throws: as `write`.
    package func zeroRange(_ range: Range<UInt64>, keepsSize: Bool, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (writer) throws(StoreError) in
            try writer.zeroRange(range, keepsSize: keepsSize, workspace)
        }
    }

    /// fallocate(2) without a mode or with KEEP_SIZE: later writes to the range do not run out of space.
    /// - Throws: the error of `Store.admitChange`; `EFBIG`, and `.system` with errno, such as `ENOSPC`.
    package func allocate(_ range: Range<UInt64>, keepsSize: Bool, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (writer) throws(StoreError) in
            try writer.allocate(range, keepsSize: keepsSize, workspace)
        }
    }

    /// Opens the file for writing, unless it is open.
    /// - Parameter evenIfClosed: as for `FileWriter.prepare`.
    /// - Throws: the error of `Store.admitChange`; `.system` with errno.
    package func prepareForWriting(evenIfClosed: Bool = false) throws(StoreError) {
        try writing.withLock { (writer) throws(StoreError) in try writer.prepare(evenIfClosed: evenIfClosed) }
    }

    /// The descriptor for writing if there is one, else the one for reading. For metadata.
    package var anyDescriptor: Descriptor { writing.withLock { $0.descriptor } }

    /// True if the file was opened for writing.
    package var hasWriter: Bool { writing.withLock { $0.isOpen } }

    /// Marks the file in its header before it gets a second name. Its times stay. The log knows a file by its id, but a
    /// copy of a vault without hard links (rsync without -H, Syncthing) makes several files with its id (FileFormat,
    /// Header-8).
    /// - Throws: `EROFS`, and errors of writing the header.
    package func markLinked() throws(StoreError) {
        try store.admitChange()
        try writing.withLock { (writer) throws(StoreError) in try writer.markLinked() }
    }

    /// Writes plaintext completely.
    /// - Throws: as `write`.
    func writeAll(
        _ bytes: UnsafeRawBufferPointer, at plaintextOffset: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        var done = 0
        while done < bytes.count {
            done += try write(bytes.slice(done...), at: plaintextOffset + UInt64(done), workspace: workspace)
        }
    }

    // MARK: Syncs and seals

    /// Does fsync(2) or fdatasync(2): makes earlier writes durable, in place or in the log.
    /// - Throws: `.system` with errno. All handles of the file then report it.
    package func synchronize(dataOnly: Bool) throws(StoreError) {
        let descriptor = writing.withLock { writer in
            writer.growth.beginSync(writer.partialChunk)
            return writer.descriptor
        }
        do throws(StoreError) {
            // Readers on other machines see only what is in place, and the log lacks a time set by a program. Sync the
            // file after the checkpoint, because one that is running already sets such a time only after its own sync.
            if isLogged && store.isShared || !dataOnly && parts.log.hasSetTime {
                try store.log.checkpoint(.fsync(fileID))
            }
            try synchronizeBacking(descriptor, dataOnly: dataOnly)
            let sequence = parts.log.lastSequence
            if sequence > 0 { try store.log.synchronize(through: sequence) }
        } catch {
            // fsync(2) reports an error only once for a descriptor, but all handles of the file must report it.
            parts.syncs.report()
            throw error
        }
    }

    /// Syncs the backing file, unless all writes to it are durable.
    func synchronizeBacking(_ descriptor: Descriptor, dataOnly: Bool) throws(StoreError) {
        try BackingSync(file: self).run(descriptor, dataOnly: dataOnly)
    }

    /// Number of changes of length, for `seal` to compare with.
    var lengthMark: UInt64 { writing.withLock { $0.lengthChanges } }

    /// True if the file was opened for writing and is not sealed.
    package var needsSeal: Bool { writing.withLock { $0.isUnsealed } }

    /// True if the header authenticates the length. It does so only for durable data.
    package var isSealed: Bool { writing.withLock { $0.header.isSealed } }

    /// Writes the length to the header and keeps the times. Returns false if the length has changed since `mark`, if
    /// the log has changes of the file, or if its keys are wiped.
    /// - Parameter isDurable: true if chunks and size are on disk already (syncfs). Otherwise they are synced first.
    func seal(ifStill mark: UInt64, isDurable: Bool) throws(StoreError) -> Bool {
        // A sync of the whole store proves nothing after a failed one.
        if !isDurable || parts.syncs.isDoubtful { try synchronize(dataOnly: true) }
        return try writing.withLock { (writer) throws(StoreError) -> Bool in try writer.seal(ifStill: mark) }
    }

    /// Makes the content of a growing file durable, and writes its length into the header.
    func writeDurableLength() throws(StoreError) {
        guard try reader.status().st_nlink > 0 else { return }
        guard let before = writing.withLock({ $0.unsynced }) else { return }
        // A request after a later seal stays, because this sync does not cover it.
        defer { writing.withLock { if $0.header.sealCounter == before.seals { $0.awaitsDurableLength = false } } }
        try synchronize(dataOnly: true)
        try writing.withLock { (writer) throws(StoreError) in try writer.writeDurableLength(before) }
    }

    // MARK: Keys

    /// The class whose key wraps the file secret.
    package var protectionClass: ProtectionClass { parts.protectionClass.load(ordering: .acquiring) }

    /// Wipes the keys, but leaves the file open. Waits for a running writer or seal.
    package func forgetKeys() { writing.withLock { _ in keys.forget() } }

    /// Derives the keys again from the header on disk. Its secret is the same as before, or does not authenticate.
    /// - Throws: `.locked` while the class key is forgotten; `.damaged`.
    package func restoreKeys() throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            if hasKeys { return }
            let stored = try StoredHeader(of: reader, keyRing: store.keyRing)
            guard stored.header.fileID == fileID else { throw .damaged("header: of another file") }
            keys.refill(from: stored.keys)
        }
    }

    /// Wraps the file secret under another class's key with one write of the header, durable on return. Chunks, seal
    /// and times stay (FileFormat, File header). Writes nothing if the file has that class.
    /// - Throws: `EROFS`; `.damaged` if the class key does not open the wrap. Also throws if the new header cannot be
    ///   made durable, although the file then has the new class.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        let isChanged = try writing.withLock { (writer) throws(StoreError) -> Bool in
            try writer.rewrap { $0.protectionClass == newClass ? nil : newClass }
        }
        // Sync without the lock, so that programs can write meanwhile.
        if isChanged { try synchronize(dataOnly: true) }
    }

    /// Wraps the secret of a file made in a locked vault under its class key, unless it is already. Best effort,
    /// because the file can be read all the same.
    package func replaceInboxWrap() {
        if store.isReadOnly { return }
        writing.withLock { writer in
            guard writer.header.ephemeralKey != nil, (try? store.admitChange()) != nil else { return }
            _ = try? writer.rewrap { $0.protectionClass }
        }
    }
}

/// The log's view of the file.
extension EncryptedFile: LoggedFile {
    var indexMemory: Int { parts.log.content.withLock { $0.changes.memory } }

    func putInPlace(_ changes: LoggedChanges, _ writer: Descriptor, from log: Descriptor) throws(StoreError) {
        try Placement(parts: parts, changes: changes, log: log, writer: writer).run(onFailedSync: countFailedSync)
    }

    func drop(through sequence: UInt64) {
        reportingTime { () throws(StoreError) in try parts.log.drop(through: sequence, reader) }
        if parts.syncs.hasLostChunks.load(ordering: .acquiring) { _ = store.durability.schedule.addGrown(self) }
    }

    private func reportingTime(_ body: () throws(StoreError) -> Void) {
        do throws(StoreError) { try body() } catch {
            store.faults.add(.placing(fileID), "a time that a program has set is lost (\(error.reason))")
        }
    }

    func relocate(_ changes: LoggedChanges, to log: Descriptor) {
        reportingTime { () throws(StoreError) in try parts.log.relocate(changes, to: log, reader) }
        let lost = changes.lostChunks
        if lost.isEmpty { return }
        parts.syncs.hasLostChunks.store(true, ordering: .releasing)
        for chunk in lost { store.cache.remove(file: token, chunk: chunk) }
    }

    func lose(_ chunks: Range<UInt64>) { store.faults.add(LostChunks(file: self, chunks: chunks)) }

    func abandonIfRemoved() -> Bool {
        guard !isBusy, reader.hasNoName else { return false }
        parts.log.abandon()
        return true
    }

    /// Takes no lock of the file.
    func countFailedSync() {
        parts.syncs.failures.add(1, ordering: .acquiringAndReleasing)
        store.durability.addDoubtful(self)
    }
}
