internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// The right to change a file, and the state that this needs: its header, and what is not durable of it. It exists only in the
/// mutex of its `EncryptedFile`, so whoever can call one of its mutating functions has the write lock. Every change of chunks,
/// length or header is one of them. The lock is taken before any lock of the log or the cache.
struct FileWriter: ~Copyable {
    /// ARCHITECTURE (The life of a chunk) shows what leads from one to another.
    enum Phase {
        /// Nobody has opened the file for writing in this process.
        case reading(Followed)
        /// Open for writing. The header authenticates the length.
        case sealed
        /// Open for writing. The header has the durable length, and gets the awaited one when a sync has covered that.
        case unsealed(awaited: UInt64?)
    }

    /// A file that another process may write, when its header was read.
    struct Followed: Equatable {
        /// The stamp of the backing file.
        var stamp: FileStamp?
        /// The number of the log's changes that were adopted then.
        var logNumber = 0
    }

    let parts: FileParts
    private(set) var header: FileHeader
    private(set) var phase = Phase.reading(Followed())
    /// The backing file: open for reading only until this process writes the file, and then for both. Either can change
    /// its attributes.
    private(set) var descriptor: Descriptor
    /// Counts the changes of length, so that a seal notices one since it synced the data.
    private(set) var lengthChanges: UInt64 = 0
    var growth = Growth()
    var space = AllocatedSpace()
    // Unsafe is enough, because the owner's mutex contains this writer and so cannot end before it.
    private unowned(unsafe) var owner: EncryptedFile?

    init(_ parts: FileParts, _ header: FileHeader) {
        (self.parts, self.header) = (parts, header)
        descriptor = parts.reader
    }

    /// Called once, before anybody else has the file.
    mutating func belong(to owner: EncryptedFile) { self.owner = owner }

    /// The file, for those who know it by its object: the log and the durability thread.
    var file: EncryptedFile {
        guard let owner else { preconditionFailure("internal error: a file's writer without its file") }
        return owner
    }

    // Shorter names of the parts.
    var store: Store { parts.store }
    var layout: ChunkLayout { parts.layout }
    var length: UInt64 { parts.length }
    private var partialChunk: UInt64? { layout.partialChunk(of: length) }

    // MARK: Phases

    var isOpen: Bool { if case .reading = phase { false } else { true } }

    var isUnsealed: Bool { if case .unsealed = phase { true } else { false } }

    /// The durable length that the header will have when a sync has covered it. Nil if no sync was asked for.
    var awaitedLength: UInt64? {
        get { if case .unsealed(let awaited) = phase { awaited } else { nil } }
        set {
            guard isUnsealed else {
                return precondition(newValue == nil, "only an unsealed file awaits a durable length")
            }
            phase = .unsealed(awaited: newValue)
        }
    }

    /// The file is open for writing from now on.
    ///
    /// reading → sealed, unsealed
    mutating func open(_ writer: Descriptor) {
        guard case .reading = phase else { preconditionFailure("a file is opened for writing once") }
        phase = header.isSealed ? .sealed : .unsealed(awaited: nil)
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
    private mutating func adopt(_ header: FileHeader) {
        self.header = header
        switch phase {
        case .sealed where !header.isSealed: phase = .unsealed(awaited: nil)
        case .unsealed where header.isSealed: phase = .sealed
        case .reading, .sealed, .unsealed: break
        }
        parts.records.adopt(header)
    }

    /// Makes sure that the file is open for writing. The first writer of a file that is longer than sealed cuts it back, and
    /// keeps what verifies.
    /// - Parameter evenIfClosed: also if the mode denies writing to its owner, this process's user. No program writes
    ///   with the descriptor.
    /// - Throws: the error of `Store.admitChange`; `.system` with errno.
    @inline(__always)
    mutating func prepare(evenIfClosed: Bool = false) throws(StoreError) {
        try store.admitChange()
        if !isOpen { try open(evenIfClosed: evenIfClosed) }
    }

    private mutating func open(evenIfClosed: Bool) throws(StoreError) {
        try openedForNow(evenIfClosed: evenIfClosed) { (writer) throws(StoreError) in
            // Before anything can be written past the sealed length. If this fails, the next caller tries again.
            if writer.parts.hasUnsealedTail {
                try FileTail(of: writer.parts, from: writer.parts.authenticLength).keep()
                try writer.cutBack()
                writer.parts.lengths.isCutBack.store(true, ordering: .releasing)
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

    /// Writes the header with a change: 128 bytes of one page, old or new. If the write fails, the header in memory does
    /// not change.
    /// - Parameter isHidden: true if programs must not notice. The backing file's attributes stay.
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
        adopt(header)
    }

    /// Clears the sealed flag, before the length changes. The header keeps the length up to which the file is durable, so
    /// that a power cut can be told from damage.
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
        parts.lengths.setAuthentic(.max)
    }

    /// Makes the header authenticate the length, when nothing of the file is in the log and everything is durable, or none of
    /// it has a name yet.
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
        // After a lock has wiped its keys, it is sealed when they are back.
        guard parts.hasKeys, lengthChanges == mark, !parts.isLogged else { return false }
        try store.admitChange()
        let writer = descriptor
        try parts.keepingAttributes(writer) { (before) throws(StoreError) in
            // A file without a name ceases to exist when it is closed.
            if before.st_nlink == 0 { return }
            // Frees the space that was allocated for more.
            let size = UInt64(clamping: before.st_size)
            if space.end > size && !space.isAhead { try writer.truncate(to: size) }
            space.free()
            try seal()
            store.counters.filesSealed.count()
        }
        return true
    }

    /// Seals a file that is shorter than its sealed header says at the length that is left.
    mutating func sealRest() throws(StoreError) {
        try prepare(evenIfClosed: true)
        // The file's size must be on disk before the header that authenticates it.
        try descriptor.synchronize(dataOnly: false)
        try seal()
    }

    /// The header's seal counter, if a durable length is awaited.
    mutating func sealsBeforeAwaited() -> UInt64? {
        // A power cut must not make a torn tail of a chunk that was lost.
        if case .unsealed(awaited: nil) = phase, parts.syncs.hasLostChunks.load(ordering: .acquiring) {
            awaitedLength = length
        }
        return awaitedLength.map { _ in header.sealCounter }
    }

    /// Writes the awaited length into the header, after a sync.
    ///
    /// unsealed → unsealed
    /// - Parameter seals: the header's seal counter before the sync. It has not covered what is awaited since a seal.
    mutating func writeDurableLength(ifStill seals: UInt64) throws(StoreError) {
        guard let durable = awaitedLength, header.sealCounter == seals, parts.hasKeys, !parts.records.log.hasLength,
            durable > header.length
        else { return }
        try store.admitChange()
        try writeHeader(isHidden: true) { $0.length = durable }
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

    /// Gives a file that had several names and has one a new id, durably, before the log has an entry of it. Its secret, content
    /// and times stay.
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
    /// - Parameter choose: returns the class. Nil to write nothing.
    /// - Returns: true if it was written.
    mutating func rewrap(_ choose: (FileHeader) -> ProtectionClass?) throws(StoreError) -> Bool {
        guard let newClass = choose(header) else { return false }
        let oldCipher = try store.keyRing.wrapCipher(of: header)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: header.epoch)
        let rewrapped = try StoreError.ofFormat(
            header.rewrapped(as: newClass, from: oldCipher, to: newCipher, keys: parts.keys))
        // Not `prepare`: the file is not opened for writing, so it must be neither cut back nor sealed.
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
        parts.lengths.set(newLength)
        let grown = Int64(clamping: newLength) - Int64(clamping: header.length)
        if grown >= Self.mostUnproven, case .unsealed(nil) = phase, !parts.records.log.hasLength,
            store.durability.schedule.addGrown(file)
        {
            awaitedLength = newLength - newLength % UInt64(layout.chunkSize)
        }
    }

    /// Bytes past the durable length that an open after an unclean end may have to verify.
    private static let mostUnproven = 256 << 20

    /// A sync of the file begins.
    mutating func beginSync() { growth.beginSync(partialChunk) }

    /// Puts everything in place, so that the backing file's size is that of the file again.
    mutating func putEverythingInPlace() throws(StoreError) {
        try store.log.checkpoint(.change(parts.fileID))
        growth.restart(partialChunk)
    }
}
