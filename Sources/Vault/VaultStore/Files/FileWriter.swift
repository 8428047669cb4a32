internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The right to change a file, and the state needed for this: the header, and the changes that are not durable. It
/// exists only in the mutex of its `EncryptedFile`, so a caller of its mutating functions has the write lock. They make
/// all changes of programs. A checkpoint puts them in place without this lock (`Placement`), and a file without a
/// header gets its first one before it has a writer. A thread takes this lock before any lock of the log or the cache.
struct FileWriter: ~Copyable {
    /// The state of the header. ARCHITECTURE (The life of a chunk) lists the transitions.
    enum Phase {
        /// This process has not opened the file for writing.
        case reading(Followed)
        /// Open for writing. The header authenticates the length.
        case sealed
        /// Open for writing. The header has the durable length.
        case unsealed
    }

    /// The state in which a file's header was read, if another process may write the file.
    struct Followed: Equatable {
        /// The stamp of the backing file.
        var stamp: FileStamp?
        /// The number of the log's changes adopted then.
        var logNumber = 0
    }

    let parts: FileParts
    private(set) var header: FileHeader
    private(set) var phase = Phase.reading(Followed())
    /// The backing file: open for reading only until this process writes the file, and then for both. Either can change
    /// its attributes.
    private(set) var descriptor: Descriptor
    /// Counts the changes of length, so that a seal notices one after its sync.
    private(set) var lengthChanges: UInt64 = 0
    /// True if the durability thread is to write a durable length.
    var awaitsDurableLength = false
    var growth = Growth()
    var space = AllocatedSpace()
    // Unsafe is enough, because the owner's mutex contains this writer and so cannot end before it.
    private unowned(unsafe) var owner: EncryptedFile?

    init(_ parts: FileParts, _ header: FileHeader) {
        (self.parts, self.header) = (parts, header)
        descriptor = parts.reader
    }

    /// Sets the writer's file. Called once, before other threads know the file.
    mutating func belong(to owner: EncryptedFile) { self.owner = owner }

    /// The file's object, by which the log and the durability thread know the file.
    var file: EncryptedFile {
        guard let owner else { preconditionFailure("internal error: a file's writer without its file") }
        return owner
    }

    // Shorter names of the parts.
    var store: Store { parts.store }
    var layout: ChunkLayout { parts.layout }
    var length: UInt64 { parts.length }
    var partialChunk: UInt64? { layout.partialChunk(of: length) }

    // MARK: Phases

    var isOpen: Bool { if case .reading = phase { false } else { true } }

    var isUnsealed: Bool { if case .unsealed = phase { true } else { false } }

    /// Adopts the descriptor with which the file is open for writing from now on.
    ///
    /// reading → sealed, unsealed
    mutating func open(_ writer: Descriptor) {
        guard case .reading = phase else { preconditionFailure("a file is opened for writing once") }
        phase = header.isSealed ? .sealed : .unsealed
        descriptor = writer
        growth.restart(partialChunk)
    }

    /// Adopts a header that another process has written.
    ///
    /// reading → reading
    mutating func follow(_ header: FileHeader, _ followed: Followed = Followed()) {
        guard case .reading = phase else { preconditionFailure("only this process writes the file") }
        self.header = header
        phase = .reading(followed)
    }

    /// Adopts a header that this process has written.
    private mutating func setHeader(_ header: FileHeader) {
        self.header = header
        switch phase {
        case .reading: break
        case .sealed, .unsealed: phase = header.isSealed ? .sealed : .unsealed
        }
        if header.isSealed { awaitsDurableLength = false }
        parts.setHeader(header)
    }

    /// Opens the file for writing, unless it is open. The first writer of a file that is longer than sealed cuts it
    /// back, and keeps verified chunks of its tail.
    /// - Parameter evenIfClosed: true to open it even if the mode denies writing to its owner, this process's user.
    ///   Programs do not write with the descriptor.
    /// - Throws: the error of `Store.admitChange`; `.system` with errno.
    @inline(__always)
    mutating func prepare(evenIfClosed: Bool = false) throws(StoreError) {
        try store.admitChange()
        if !isOpen { try open(evenIfClosed: evenIfClosed) }
    }

    private mutating func open(evenIfClosed: Bool) throws(StoreError) {
        try openedForNow(evenIfClosed: evenIfClosed) { (writer) throws(StoreError) in
            // Cut back before anything is written past the sealed length. If this fails, the next caller tries again.
            if writer.parts.hasUnsealedTail {
                try FileTail(of: writer.parts, from: writer.parts.authenticLength).keep()
                try writer.cutBack()
                writer.parts.isCutBack.store(true, ordering: .releasing)
            }
            if writer.header.isLinked { try writer.replaceSharedID() }
            writer.open(writer.descriptor)
        }
    }

    /// Runs `body` with a descriptor for writing. A file that is not open for writing stays so, unless `body` opens it.
    mutating func openedForNow<Result>(
        evenIfClosed: Bool, _ body: (inout FileWriter) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        if isOpen { return try body(&self) }
        let reader = parts.reader
        descriptor = evenIfClosed ? try reader.reopenedForWriting() : try reader.reopened(flags: O_RDWR)
        defer { if !isOpen { descriptor = reader } }
        return try body(&self)
    }

    // MARK: The header

    /// Writes the header with a change: 128 bytes of one page, so the disk has the old or the new one. If the write
    /// fails, the header in memory does not change.
    /// - Parameter isHidden: true to hide the write from programs: the backing file's attributes stay.
    mutating func writeHeader(isHidden: Bool = false, _ change: (inout FileHeader) -> Void) throws(StoreError) {
        let writer = descriptor
        if isHidden {
            return try parts.keepingAttributes(writer) { (_) throws(StoreError) in try writeHeader(change) }
        }
        var header = header
        change(&header)
        let bytes = try StoreError.ofFormat(header.serialized(keys: parts.keys))
        try parts.syncs.writtenHeader.withLock { (written) throws(StoreError) in
            try writer.write(bytes, at: 0)
            written = bytes
        }
        parts.syncs.countWrite()
        setHeader(header)
    }

    /// Clears the sealed flag before the length changes. The durable length stays, to tell a power cut from damage.
    ///
    /// sealed → unsealed
    /// - Parameter floor: the file is about to be cut to this length.
    mutating func unseal(floor: UInt64 = .max) throws(StoreError) {
        let durable = min(header.length, floor)
        guard header.isSealed || durable != header.length else { return }
        try writeHeader {
            $0.isSealed = false
            $0.length = durable
        }
        parts.authenticLength = .max
    }

    /// Makes the header authenticate the length. The log has nothing of the file, and everything is durable, or the
    /// file has no name yet.
    ///
    /// sealed, unsealed → sealed
    mutating func seal() throws(StoreError) {
        precondition(!parts.isLogged, "a file is in place before it is sealed")
        let length = length
        try writeHeader {
            $0.isSealed = true
            $0.length = length
            $0.sealCounter += 1
        }
        growth.restart(partialChunk)
    }

    /// Does `EncryptedFile.seal`, once the file is durable.
    mutating func seal(ifStill mark: UInt64) throws(StoreError) -> Bool {
        guard isUnsealed else { return !parts.isLogged }
        // If a lock has wiped the keys, the file is sealed when they are back.
        guard parts.hasKeys, lengthChanges == mark, !parts.isLogged else { return false }
        try store.admitChange()
        let writer = descriptor
        try parts.keepingAttributes(writer) { (before) throws(StoreError) in
            // A file without a name counts as sealed, because it ceases to exist when it is closed.
            if before.st_nlink == 0 { return }
            // Free the space allocated for more, and cut off the rest of a failed write.
            var size = UInt64(clamping: before.st_size)
            if space.hasRest { size = min(size, layout.backingSize(ofPlaintextLength: length)) }
            if space.hasRest || space.end > size && !space.isAhead { try writer.truncate(to: size) }
            space.end = 0
            try seal()
            store.counters.filesSealed.count()
        }
        return true
    }

    /// Seals a file at its remaining length, because it is shorter than its sealed header says.
    mutating func sealRest() throws(StoreError) {
        try prepare(evenIfClosed: true)
        // Sync first, because the file's size must be on disk before a header authenticates it.
        try descriptor.synchronize(dataOnly: false)
        try seal()
    }

    /// The state of a file before a sync, for `writeDurableLength`.
    struct Unsynced {
        let length, seals, cuts: UInt64
    }

    /// Returns the state before a sync, if a durable length is awaited.
    var unsynced: Unsynced? {
        // After a loss, include a partial chunk. Otherwise a recovery would take the lost chunk for a torn tail.
        let hasLost = parts.syncs.hasLostChunks.load(ordering: .acquiring)
        guard isUnsealed, awaitsDurableLength || hasLost else { return nil }
        let whole = length - length % UInt64(layout.chunkSize)
        return Unsynced(length: hasLost ? length : whole, seals: header.sealCounter, cuts: parts.cuts.value)
    }

    /// Writes the length before a sync into the header, unless the file was cut or sealed since.
    ///
    /// unsealed → unsealed
    mutating func writeDurableLength(_ before: Unsynced) throws(StoreError) {
        guard isUnsealed, header.sealCounter == before.seals, parts.cuts.value == before.cuts, parts.hasKeys,
            !parts.log.hasLength, before.length > header.length
        else { return }
        try store.admitChange()
        try writeHeader(isHidden: true) { $0.length = before.length }
    }

    /// Sets the sparse flag, before a hole is made.
    mutating func markSparse() throws(StoreError) {
        guard !header.isSparse else { return }
        try writeHeader { $0.isSparse = true }
    }

    /// Does `EncryptedFile.markLinked`.
    mutating func markLinked() throws(StoreError) {
        if header.isLinked { return }
        try openedForNow(evenIfClosed: true) { (writer) throws(StoreError) in
            try writer.writeHeader(isHidden: true) { $0.isLinked = true }
        }
    }

    /// Gives a formerly linked file with one name a new id, durably, before the log has an entry of it. Its secret,
    /// content and times stay.
    private mutating func replaceSharedID() throws(StoreError) {
        guard !parts.isLogged, try descriptor.status().st_nlink == 1 else { return }
        let cipher = try store.keyRing.wrapCipher(of: header)
        let renamed = try StoreError.ofFormat(header.withNewID(classCipher: cipher))
        try writeHeader(isHidden: true) { $0 = renamed }
        do throws(StoreError) { try descriptor.synchronize(dataOnly: true) } catch {
            // The next sync writes the header again.
            file.countFailedSync()
            throw error
        }
    }

    /// Wraps the file secret under the key of a class, with one write of the header.
    /// - Parameter choose: returns the class, or nil to write nothing.
    /// - Returns: true if the header was written.
    mutating func rewrap(_ choose: (FileHeader) -> ProtectionClass?) throws(StoreError) -> Bool {
        guard let newClass = choose(header) else { return false }
        let oldCipher = try store.keyRing.wrapCipher(of: header)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: header.epoch)
        let rewrapped = try StoreError.ofFormat(header.rewrapped(as: newClass, from: oldCipher, to: newCipher))
        // Do not `prepare`: the file is not opened for writing, so it must be neither cut back nor sealed.
        try openedForNow(evenIfClosed: false) { (writer) throws(StoreError) in
            try writer.writeHeader(isHidden: true) { $0 = rewrapped }
        }
        return true
    }

    // MARK: The length

    /// Sets a new length, for readers too.
    mutating func setLength(_ newLength: UInt64) {
        if newLength == length { return }
        precondition(!header.isSealed || newLength == header.length, "a file is unsealed before its length changes")
        lengthChanges += 1
        parts.length = newLength
        let grown = Int64(clamping: newLength) - Int64(clamping: header.length)
        if grown >= Self.mostUnproven, isUnsealed, !awaitsDurableLength, !parts.log.hasLength {
            awaitsDurableLength = store.durability.schedule.addGrown(file)
        }
    }

    /// Bytes past the durable length at which a new one is written. An open after an unclean end may have to verify
    /// them.
    private static let mostUnproven = 256 << 20

    /// Puts everything in place, so that the backing file has the file's length again.
    mutating func putEverythingInPlace() throws(StoreError) {
        try store.log.checkpoint(.change(parts.fileID))
        growth.restart(partialChunk)
    }
}
