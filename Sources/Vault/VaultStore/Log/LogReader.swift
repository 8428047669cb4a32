internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Reads and authenticates single entries of a log, at any offset. Used by one thread.
struct LogReader {
    /// An entry whose head is authentic.
    struct Found {
        let entry: LogEntry
        let offset: UInt64
        /// False if the body cannot be read, or is damaged.
        let isWhole: Bool
    }

    let descriptor: Descriptor
    let header: LogHeader
    private let keys: ChunkKeys
    private let layout: ChunkLayout
    private let cipher: ChunkCipher
    /// The last entry read, and room for a computed tag after the largest one.
    private var buffer: [UInt8]

    init(_ descriptor: Descriptor, _ header: LogHeader, keys: ChunkKeys, _ layout: ChunkLayout) throws(StoreError) {
        self.descriptor = descriptor
        self.header = header
        self.keys = keys
        self.layout = layout
        cipher = try StoreError.ofCrypto(ChunkCipher())
        buffer = [UInt8](
            repeating: 0, count: LogEntry.headSize + Workspace.largestBatch(layout) + 2 * LogEntry.tagSize)
    }

    /// True if the header was written with these keys.
    var isHeaderAuthentic: Bool {
        get throws(StoreError) { try header.tag(keys: keys, cipher) == header.tag }
    }

    /// Offset in `buffer` of a computed tag, and so the size of the largest entry.
    private var largestSize: Int { buffer.count - LogEntry.tagSize }

    /// Runs `body` with the bytes of an entry just read, which it may change: head, body and tag.
    /// - Throws: the error of `body`.
    mutating func withBytes<Result>(
        of entry: LogEntry, _ body: (UnsafeMutableRawBufferPointer) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        try buffer.withMutableBytes { (bytes) throws(StoreError) -> Result in try body(bytes.slice(..<entry.size)) }
    }

    /// Returns true if the entry is at this offset, whole. Also reads it.
    /// - Throws: the error of pread(2).
    mutating func verify(_ entry: LogEntry, at offset: UInt64) throws(StoreError) -> Bool {
        let size = min(entry.size, largestSize)
        let count = try buffer.withMutableBytes { (bytes) throws(StoreError) -> Int in
            try descriptor.read(at: offset, into: bytes.slice(..<size))
        }
        guard count == entry.size, parsedHead() == entry, try isHeadAuthentic(entry) else { return false }
        return try isBodyAuthentic(entry)
    }

    /// Reads the entry at an offset. Nil if none with this number begins there, or if its head is damaged or
    /// unreadable.
    mutating func entry(at offset: UInt64, sequence: UInt64) throws(StoreError) -> Found? {
        guard offset < header.logSize, try read(0..<LogEntry.headSize, at: offset), let entry = parsedHead(),
            entry.sequence == sequence, isPossible(entry, at: offset), try isHeadAuthentic(entry)
        else { return nil }
        let isThere = try read(LogEntry.headSize..<entry.size, at: offset)
        let isWhole = isThere ? try isBodyAuthentic(entry) : false
        return Found(entry: entry, offset: offset, isWhole: isWhole)
    }

    /// Reads a part of the entry at an offset. Returns false if it is missing, or if the disk cannot read it.
    private mutating func read(_ part: Range<Int>, at offset: UInt64) throws(StoreError) -> Bool {
        let log = descriptor
        return try buffer.withMutableBytes { (bytes) throws(StoreError) in
            try log.readIfReadable(at: offset + UInt64(part.lowerBound), into: bytes.slice(part)) == part.count
        }
    }

    /// True if such an entry can be at an offset.
    private func isPossible(_ entry: LogEntry, at offset: UInt64) -> Bool {
        entry.isValid(layout) && entry.size <= largestSize && UInt64(entry.size) <= header.logSize - offset
    }

    private func parsedHead() -> LogEntry? {
        buffer.withBytes { LogEntry(parsing: $0.slice(..<LogEntry.fieldsSize)) }
    }

    private mutating func isHeadAuthentic(_ entry: LogEntry) throws(StoreError) -> Bool {
        try isAuthentic(0..<LogEntry.fieldsSize, entry.headNonce)
    }

    private mutating func isBodyAuthentic(_ entry: LogEntry) throws(StoreError) -> Bool {
        let body = LogEntry.headSize..<(LogEntry.headSize + entry.bodySize)
        return body.isEmpty ? true : try isAuthentic(body, entry.bodyNonce)
    }

    /// Verifies the tag after a part of the last entry read.
    private mutating func isAuthentic(_ part: Range<Int>, _ nonce: UInt64) throws(StoreError) -> Bool {
        let end = largestSize
        return try buffer.withMutableBytes { (bytes) throws(StoreError) -> Bool in
            let computed = bytes.slice(end...)
            try StoreError.ofCrypto { () throws(CryptoError) in
                try cipher.authenticate(
                    UnsafeRawBufferPointer(bytes.slice(part)), nonce: (nonce, header.salt), keys: keys, into: computed)
            }
            return computed.elementsEqual(bytes.slice(part.upperBound..<(part.upperBound + LogEntry.tagSize)))
        }
    }

    // MARK: Searching

    /// Returns the offsets of possible heads of entries, by their numbers. They are not authenticated.
    /// - Parameter sequence: only of entries from this number on.
    func possibleEntries(from sequence: UInt64) throws(StoreError) -> [(sequence: UInt64, offset: UInt64)] {
        // A log has no more entries than places for them.
        let numbers = sequence..<(sequence + header.logSize / LogEntry.alignment)
        var found: [(sequence: UInt64, offset: UInt64)] = []
        var piece = [UInt8](repeating: 0, count: 64 << 10)
        var offset = LogHeader.areaSize
        while offset < header.logSize {
            let count = try piece.withMutableBytes { (piece) throws(StoreError) in
                try readWithGaps(at: offset, into: piece)
            }
            piece.withBytes { bytes in
                for start in stride(from: 0, to: count - LogEntry.fieldsSize + 1, by: Int(LogEntry.alignment)) {
                    let head = bytes.slice(start..<(start + LogEntry.fieldsSize))
                    guard let entry = LogEntry(parsing: head), numbers.contains(entry.sequence),
                        isPossible(entry, at: offset + UInt64(start))
                    else { continue }
                    found.append((entry.sequence, offset + UInt64(start)))
                }
            }
            if count < piece.count { break }
            offset += UInt64(count)
        }
        return found.sorted { $0.sequence < $1.sequence }
    }

    /// Reads a part of the file. Unreadable bytes become zeros, which are no entry. Returns the number of bytes.
    private func readWithGaps(at offset: UInt64, into bytes: UnsafeMutableRawBufferPointer) throws(StoreError) -> Int {
        if let count = try descriptor.readIfReadable(at: offset, into: bytes) { return count }
        var done = 0
        while done < bytes.count {
            let block = bytes.slice(done..<min(done + 4096, bytes.count))
            let count = try descriptor.readIfReadable(at: offset + UInt64(done), into: block)
            if count == nil { block.fill(with: 0) }
            done += count ?? block.count
            if let count, count < block.count { break }
        }
        return done
    }
}

extension Descriptor {
    /// Reads a part of a log. Nil if the disk answers, but cannot read the part.
    /// - Throws: any error except `EIO`, and `EIO` if even the header cannot be read.
    fileprivate func readIfReadable(
        at offset: UInt64, into bytes: UnsafeMutableRawBufferPointer
    ) throws(StoreError) -> Int? {
        for _ in 0..<2 {
            do throws(StoreError) { return try read(at: offset, into: bytes) } catch {
                guard error == .system(.ioError) else { throw error }
            }
        }
        _ = try read(at: 0, count: LogHeader.size)
        return nil
    }
}
