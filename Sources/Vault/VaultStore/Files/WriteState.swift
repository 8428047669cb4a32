internal import LinuxSystem
internal import VaultFormat

/// The header of an open file, and what it takes to change the file. Under its write lock.
struct WriteState {
    /// ARCHITECTURE (The life of a chunk) shows what leads from one to another.
    enum Phase {
        /// Nobody has opened the file for writing in this process.
        case reading(Followed)
        /// Open for writing. The header authenticates the length.
        case sealed(Descriptor)
        /// Open for writing. The header has the durable length, and gets the awaited one when a sync has covered that.
        case unsealed(Descriptor, awaited: UInt64?)
    }

    /// A file that another process may write, when its header was read.
    struct Followed: Equatable {
        /// The stamp of the backing file.
        var stamp: FileStamp?
        /// The number of the log's changes that were adopted then.
        var logNumber = 0
    }

    /// The chunk that may be durable as the last and partial one, since the last sync. Nothing is written after it before its
    /// successor is durable.
    enum Tail {
        /// New chunks may be written past the end.
        case free
        case durable(UInt64)
        /// An entry of the log has replaced it. A sync may have begun since, and there may be another one, or none.
        case replaced(UInt64?, by: UInt64)

        init(_ partialChunk: UInt64?) { self = if let partialChunk { .durable(partialChunk) } else { .free } }

        var chunk: UInt64? {
            switch self {
            case .free: nil
            case .durable(let chunk): chunk
            case .replaced(let chunk, _): chunk
            }
        }

        /// A sync begins, while the file ends with this partial chunk, if it does. It may fail, so an entry is still awaited.
        mutating func beginSync(_ partialChunk: UInt64?) {
            if case .replaced(_, let sequence) = self {
                self = .replaced(partialChunk, by: sequence)
            } else {
                self = Tail(partialChunk)
            }
        }
    }

    struct AllocatedSpace {
        /// Backing offset up to which space was allocated.
        var end: UInt64 = 0
        /// The value of `FileLog.spaceReleases` then.
        var releases = 0
        /// True if a program has allocated space after the end, which stays.
        var isAhead = false
    }

    private(set) var header: FileHeader
    private(set) var phase = Phase.reading(Followed())
    /// Counts the changes of length, so that a seal notices one since it synced the data.
    private(set) var lengthChanges: UInt64 = 0
    var tail = Tail.free
    var space = AllocatedSpace()
    /// Bytes of new chunks that were logged since the last sync.
    var loggedGrowth = 0
    /// Bytes that were logged since the log has the file's length.
    var loggedBytes = 0

    init(_ header: FileHeader) { self.header = header }

    /// The descriptor for writing.
    var writer: Descriptor? {
        switch phase {
        case .reading: nil
        case .sealed(let writer), .unsealed(let writer, _): writer
        }
    }

    var isUnsealed: Bool { if case .unsealed = phase { true } else { false } }

    /// The durable length that the header will have when a sync has covered it. Nil if no sync was asked for.
    var awaitedLength: UInt64? {
        get { if case .unsealed(_, let awaited) = phase { awaited } else { nil } }
        set {
            guard case .unsealed(let writer, _) = phase else {
                return precondition(newValue == nil, "only an unsealed file awaits a durable length")
            }
            phase = .unsealed(writer, awaited: newValue)
        }
    }

    /// Opens the file for writing.
    /// - Parameter partialChunk: the file's last chunk, if it is a partial one.
    mutating func open(_ writer: Descriptor, partialChunk: UInt64?) {
        guard case .reading = phase else { preconditionFailure("a file is opened for writing once") }
        phase = header.isSealed ? .sealed(writer) : .unsealed(writer, awaited: nil)
        tail = Tail(partialChunk)
    }

    /// Adopts a header that another process has written.
    mutating func follow(_ header: FileHeader, _ followed: Followed = Followed()) {
        guard case .reading = phase else { preconditionFailure("only this process writes the file") }
        self.header = header
        phase = .reading(followed)
    }

    /// Adopts a header that this process has written.
    mutating func adopt(_ header: FileHeader) {
        self.header = header
        switch phase {
        case .sealed(let writer) where !header.isSealed: phase = .unsealed(writer, awaited: nil)
        case .unsealed(let writer, _) where header.isSealed: phase = .sealed(writer)
        case .reading, .sealed, .unsealed: break
        }
    }

    /// The file gets another length.
    mutating func changeLength(to length: UInt64) {
        precondition(!header.isSealed || length == header.length, "a file is unsealed before its length changes")
        lengthChanges += 1
    }
}
