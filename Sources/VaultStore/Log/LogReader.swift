internal import Glibc
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// Reads the authentic entries of a log, in order. The first that does not authenticate ends the log. Used by one thread.
struct LogReader {
    /// Where a log goes on: the sequence number of the next entry and its offset.
    struct Position: Equatable, Sendable {
        var sequence: UInt64
        var offset: UInt64
    }

    private let descriptor: Descriptor
    private let header: LogHeader
    private let keys: ChunkKeys
    private let layout: ChunkLayout
    private let cipher: ChunkCipher
    private var buffer: [UInt8]
    private(set) var position: Position

    init(_ descriptor: Descriptor, _ header: LogHeader, keys: ChunkKeys, _ layout: ChunkLayout) throws(StoreError) {
        self.descriptor = descriptor
        self.header = header
        self.keys = keys
        self.layout = layout
        cipher = try StoreError.ofCrypto(ChunkCipher())
        // The largest entry, and a computed tag.
        buffer = [UInt8](
            repeating: 0, count: LogEntry.headSize + Workspace.largestBatch(layout) + 2 * LogEntry.tagSize)
        position = Position(sequence: header.startSequence, offset: header.startOffset)
    }

    /// The next entry and the offset of its body. Nil at the end.
    mutating func next() throws(StoreError) -> (entry: LogEntry, body: UInt64)? {
        // An entry that does not fit before the end of the log is at its beginning.
        for offset in [position.offset, LogHeader.areaSize] {
            guard let entry = try entry(at: offset) else { continue }
            position = Position(sequence: entry.sequence + 1, offset: offset + UInt64(entry.size))
            return (entry, offset + UInt64(LogEntry.headSize))
        }
        return nil
    }

    /// All entries before `end`, as the changes of each file.
    mutating func changes(before end: UInt64 = .max) throws(StoreError) -> [UInt64: LoggedChanges] {
        var files: [UInt64: LoggedChanges] = [:]
        while position.sequence < end, let (entry, body) = try next() {
            files[entry.fileID, default: LoggedChanges()].apply(entry, at: body, layout)
        }
        return files
    }

    private mutating func entry(at offset: UInt64) throws(StoreError) -> LogEntry? {
        let (expected, salt) = (position.sequence, header.salt)
        let most = UInt64(buffer.count - LogEntry.tagSize)
        guard offset < header.logSize else { return nil }
        return try buffer.withMutableBytes { (buffer) throws(StoreError) -> LogEntry? in
            let head = buffer.slice(..<LogEntry.headSize)
            guard try descriptor.read(at: offset, into: head) == head.count,
                let entry = LogEntry(parsing: UnsafeRawBufferPointer(head)), entry.sequence == expected,
                UInt64(entry.size) <= min(most, header.logSize - offset), entry.isValid(layout)
            else { return nil }
            let rest = buffer.slice(LogEntry.headSize..<entry.size)
            guard try descriptor.read(at: offset + UInt64(LogEntry.headSize), into: rest) == rest.count else {
                return nil
            }
            let message = UnsafeRawBufferPointer(buffer.slice(..<(entry.size - LogEntry.tagSize)))
            let (tag, stored) = (buffer.slice(Int(most)...), buffer.slice((entry.size - LogEntry.tagSize)..<entry.size))
            try StoreError.ofCrypto { () throws(CryptoError) in
                try cipher.authenticate(message, nonce: (expected, salt), keys: keys, into: tag)
            }
            return tag.elementsEqual(stored) ? entry : nil
        }
    }
}
