/// The head of one entry of `vaultfs.log` (FileFormat, Log): 64 bytes before the entry's body, which a tag of 16 bytes
/// follows.
package struct LogEntry: Sendable, Equatable {
    /// The change that an entry describes.
    package enum Kind: UInt32, Sendable {
        /// The body is a run of adjacent chunk records, all full but the last. The first is of chunk `first`.
        case records = 1
        /// The file is cut to `length`.
        case length = 2
        /// The chunks from `first` to `end`, exclusive, become a hole, also behind the end.
        case hole = 3
    }

    package static let headSize = 64
    package static let tagSize = 16
    private static let exactFlag: UInt32 = 1 << 8

    package var kind: Kind
    /// Consecutive in a log. The first is 1.
    package var sequence: UInt64 = 0
    package let fileID: UInt64
    package var first: UInt64 = 0
    package var end: UInt64 = 0
    /// The file's plaintext length after the change, if `isExact`. Else 0.
    package var length: UInt64 = 0
    /// True if the file ends at `length`, whatever its backing size is.
    package var isExact = false
    /// Time of the change, in nanoseconds since 1970.
    package var time: UInt64 = 0
    package var bodySize: Int = 0

    /// Bytes of the whole entry.
    package var size: Int { Self.headSize + bodySize + Self.tagSize }

    package init(_ kind: Kind, fileID: UInt64) {
        self.kind = kind
        self.fileID = fileID
    }

    /// Writes the 64 bytes of the head.
    package func store(into head: UnsafeMutableRawBufferPointer) {
        head.storeLittleEndian64(sequence, at: 0)
        head.storeLittleEndian64(fileID, at: 8)
        head.storeLittleEndian64(first, at: 16)
        head.storeLittleEndian64(end, at: 24)
        head.storeLittleEndian64(length, at: 32)
        head.storeLittleEndian64(time, at: 40)
        head.storeLittleEndian64(0, at: 48)
        head.storeLittleEndian64(
            UInt64(bodySize) << 32 | UInt64(kind.rawValue | (isExact ? Self.exactFlag : 0)), at: 56)
    }

    /// Parses 64 bytes. Nil if they are no head. Nothing is authenticated yet.
    package init?(parsing head: UnsafeRawBufferPointer) {
        guard head.count == Self.headSize else { return nil }
        let word = head.littleEndian64(at: 56)
        let flags = UInt32(truncatingIfNeeded: word)
        guard let kind = Kind(rawValue: flags & ~Self.exactFlag), let bodySize = Int(exactly: word >> 32),
            head.littleEndian64(at: 48) == 0
        else { return nil }
        self.init(kind, fileID: head.littleEndian64(at: 8))
        sequence = head.littleEndian64(at: 0)
        first = head.littleEndian64(at: 16)
        end = head.littleEndian64(at: 24)
        length = head.littleEndian64(at: 32)
        time = head.littleEndian64(at: 40)
        isExact = flags & Self.exactFlag != 0
        self.bodySize = bodySize
    }

    /// True if the fields of an authentic entry make sense in a vault of this layout.
    package func isValid(_ layout: ChunkLayout) -> Bool {
        guard fileID != 0, length <= UInt64(Int64.max) / 2 else { return false }
        switch kind {
        case .records:
            guard bodySize > 0, let last = lastRecordSize(layout), last > ChunkLayout.recordOverhead else {
                return false
            }
            return layout.recordOffset(ofChunk: first + recordCount(layout)) < UInt64(Int64.max)
        case .length: return bodySize == 0 && isExact
        case .hole:
            return bodySize == 0 && first < end && layout.recordOffset(ofChunk: end) < UInt64(Int64.max)
        }
    }

    /// Number of records in the body.
    package func recordCount(_ layout: ChunkLayout) -> UInt64 {
        UInt64((bodySize + layout.recordSize - 1) / layout.recordSize)
    }

    private func lastRecordSize(_ layout: ChunkLayout) -> Int? {
        first < UInt64(Int64.max) ? bodySize - Int(recordCount(layout) - 1) * layout.recordSize : nil
    }
}

/// The first 64 bytes of `vaultfs.log` (FileFormat, Log). Not authenticated: entries are. One sector has all of it, so a
/// power cut leaves the old ones or the new ones.
package struct LogHeader: Sendable, Equatable {
    /// Bytes before the entries.
    package static let areaSize: UInt64 = 4096
    package static let size = 64
    package static let defaultLogSize: UInt64 = 64 << 20
    package static let logSizes: ClosedRange<UInt64> = (1 << 20)...(1 << 30)
    package static let magic = Array("vaultfs log 1\n\0\0".utf8)

    /// The smallest log in which a vault's largest entries leave room for others.
    package static func smallestSize(_ layout: ChunkLayout) -> UInt64 {
        max(logSizes.lowerBound, 8 * UInt64(layout.recordSize))
    }

    /// True for a size that a log can have in a vault of this layout.
    package static func isValid(size: Int, _ layout: ChunkLayout) -> Bool {
        UInt64(exactly: size).map { $0 >= smallestSize(layout) && logSizes.contains($0) } ?? false
    }

    /// Maximum number of bytes of the whole file.
    package var logSize: UInt64
    /// Drawn anew for each mount that writes entries. Part of every tag's nonce.
    package var salt: UInt64 = 0
    /// The first entry that may not be in place: its sequence number and offset.
    package var startSequence: UInt64 = 1
    package var startOffset: UInt64 = areaSize

    package init(logSize: UInt64) { self.logSize = logSize }

    package var bytes: [UInt8] {
        var bytes = Self.magic + [UInt8](repeating: 0, count: Self.size - Self.magic.count)
        bytes.storeLittleEndian64(logSize, at: 16)
        bytes.storeLittleEndian64(salt, at: 24)
        bytes.storeLittleEndian64(startSequence, at: 32)
        bytes.storeLittleEndian64(startOffset, at: 40)
        return bytes
    }

    /// Parses 64 bytes. Nil if they are no header.
    package init?(parsing bytes: [UInt8]) {
        guard bytes.count == Self.size, bytes.starts(with: Self.magic), bytes[48...].allSatisfy({ $0 == 0 }) else {
            return nil
        }
        logSize = bytes.littleEndian64(at: 16)
        salt = bytes.littleEndian64(at: 24)
        startSequence = bytes.littleEndian64(at: 32)
        startOffset = bytes.littleEndian64(at: 40)
        guard Self.logSizes.contains(logSize), startSequence > 0, (Self.areaSize...logSize).contains(startOffset) else {
            return nil
        }
    }
}
