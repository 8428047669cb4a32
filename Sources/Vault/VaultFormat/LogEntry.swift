/// The head of one entry of `vaultfs.log` (FileFormat, Log): 64 bytes of fields and a tag of 16. A body, if any,
/// follows with a tag of its own.
package struct LogEntry: Sendable, Equatable {
    /// The kinds of change in an entry.
    package enum Kind: UInt8, Sendable {
        /// The body is a run of adjacent chunk records, all full but the last. The first is of chunk `first`.
        case records = 1
        /// The file is cut to `length`.
        case length = 2
        /// The chunks from `first` to `end`, exclusive, become a hole. They may be past the file's end.
        case hole = 3
        /// A substitute for an unreadable entry of `records` with a body of `end` bytes.
        case lost = 4
    }

    package static let fieldsSize = 64
    package static let tagSize = 16
    package static let headSize = fieldsSize + tagSize
    package static let alignment: UInt64 = 64
    private static let exactFlag: UInt8 = 1 << 7

    package var kind: Kind
    /// Consecutive in a log.
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
    /// The seal counter of the file's header. 56 bits.
    package var sealCounter: UInt64 = 0
    /// The last entry durable when this one was written, or an earlier one.
    package var durable: UInt64 = 0
    package var bodySize: Int = 0

    package var size: Int { Self.headSize + (bodySize > 0 ? bodySize + Self.tagSize : 0) }

    /// The first half of the nonce of the head's tag. The body's has `bodyNonce`. Each is unique under the salt.
    package var headNonce: UInt64 { 1 << 62 | sequence }
    package var bodyNonce: UInt64 { sequence }

    /// Bytes from this entry's beginning to the next one's.
    package var space: UInt64 { (UInt64(size) + Self.alignment - 1) / Self.alignment * Self.alignment }

    /// - Parameters:
    ///   - exactLength: the file's length after the change, if the log has an exact length from then on.
    ///   - bodySize: bytes of the body, without its tag.
    package init(
        _ kind: Kind, fileID: UInt64, sealCounter: UInt64 = 0, first: UInt64 = 0, end: UInt64 = 0, bodySize: Int = 0,
        exactLength: UInt64? = nil
    ) {
        self.kind = kind
        self.fileID = fileID
        self.sealCounter = sealCounter
        (self.first, self.end) = (first, end)
        (length, isExact) = (exactLength ?? 0, exactLength != nil)
        self.bodySize = bodySize
    }

    /// The substitute for this entry of kind `records`, written if its body cannot be read.
    package var lost: LogEntry {
        var entry = self
        entry.kind = .lost
        entry.end = UInt64(bodySize)
        entry.bodySize = 0
        return entry
    }

    /// True if putting the entry in place may free space, because it cuts the file or makes a hole.
    package var mayFreeSpace: Bool { isExact || kind == .hole }

    package func store(into head: UnsafeMutableRawBufferPointer) {
        head.storeLittleEndian64(sequence, at: 0)
        head.storeLittleEndian64(fileID, at: 8)
        head.storeLittleEndian64(first, at: 16)
        head.storeLittleEndian64(end, at: 24)
        head.storeLittleEndian64(length, at: 32)
        head.storeLittleEndian64(time, at: 40)
        let kind = UInt64(kind.rawValue | (isExact ? Self.exactFlag : 0))
        head.storeLittleEndian64(sealCounter & (1 << 56 - 1) | kind << 56, at: 48)
        let distance = min(sequence - min(durable, sequence), UInt64(UInt32.max))
        head.storeLittleEndian64(UInt64(bodySize) << 32 | distance, at: 56)
    }

    /// Parses 64 bytes without authenticating them. Returns nil if they are no fields of an entry.
    package init?(parsing head: UnsafeRawBufferPointer) {
        guard head.count == Self.fieldsSize else { return nil }
        let (state, sizes) = (head.littleEndian64(at: 48), head.littleEndian64(at: 56))
        let flags = UInt8(truncatingIfNeeded: state >> 56)
        guard let kind = Kind(rawValue: flags & ~Self.exactFlag), let bodySize = Int(exactly: sizes >> 32) else {
            return nil
        }
        self.init(kind, fileID: head.littleEndian64(at: 8))
        sequence = head.littleEndian64(at: 0)
        first = head.littleEndian64(at: 16)
        end = head.littleEndian64(at: 24)
        length = head.littleEndian64(at: 32)
        time = head.littleEndian64(at: 40)
        isExact = flags & Self.exactFlag != 0
        sealCounter = state & (1 << 56 - 1)
        let distance = sizes & UInt64(UInt32.max)
        guard distance > 0, distance <= sequence else { return nil }
        durable = sequence - distance
        self.bodySize = bodySize
    }

    /// Returns true if the fields make sense in a vault of this layout. Readers refuse other entries, so writers must
    /// too.
    package func isValid(_ layout: ChunkLayout) -> Bool {
        guard fileID != 0, length <= UInt64(Int64.max) / 2, first < UInt64(Int64.max), end <= UInt64(Int64.max),
            isExact || length == 0
        else { return false }
        switch kind {
        case .records: return end == 0 && hasRecords(bodySize, layout)
        case .length: return bodySize == 0 && isExact && first == 0 && end == 0
        case .hole: return bodySize == 0 && first < end && hasOffset(end, layout)
        case .lost: return bodySize == 0 && end <= UInt64(UInt32.max) && hasRecords(Int(end), layout)
        }
    }

    /// Returns the chunks whose records the entry has, or has lost.
    package func chunks(_ layout: ChunkLayout) -> Range<UInt64> {
        let size = kind == .lost ? end : UInt64(bodySize)
        return first..<(first + (size + UInt64(layout.recordSize) - 1) / UInt64(layout.recordSize))
    }

    /// Returns true if `size` bytes can be records from chunk `first` on.
    private func hasRecords(_ size: Int, _ layout: ChunkLayout) -> Bool {
        let rest = size % layout.recordSize
        guard size > 0, rest == 0 || rest > ChunkLayout.recordOverhead else { return false }
        return hasOffset(first + UInt64(size / layout.recordSize) + 1, layout)
    }

    private func hasOffset(_ chunk: UInt64, _ layout: ChunkLayout) -> Bool {
        chunk < (UInt64(Int64.max) - UInt64(ChunkLayout.headerSize)) / UInt64(layout.recordSize)
    }
}

/// The first 64 bytes of `vaultfs.log` (FileFormat, Log). One sector has them, so a power cut leaves them old or new.
package struct LogHeader: Sendable, Equatable {
    package static let areaSize: UInt64 = 4096
    package static let size = 64
    package static let tagOffset = size - LogEntry.tagSize
    /// Offset in the log of a copy of the header, in another sector. Readers use it only if the header is damaged.
    package static let copyOffset = 2048
    package static let defaultLogSize: UInt64 = 64 << 20
    package static let logSizes: ClosedRange<UInt64> = (1 << 20)...(1 << 30)
    /// The valid sequence numbers. The bits above them distinguish the nonces of tags.
    package static let sequences: Range<UInt64> = 1..<(1 << 62)
    package static let magic = Array("vaultfs log 1\n\0\0".utf8)

    /// Returns the smallest log in which a vault's largest entries leave room for others.
    package static func smallestSize(_ layout: ChunkLayout) -> UInt64 {
        max(logSizes.lowerBound, 8 * UInt64(layout.recordSize))
    }

    /// Returns true if a log can have this size in a vault of this layout.
    package static func isValid(size: Int, _ layout: ChunkLayout) -> Bool {
        UInt64(exactly: size).map { $0 >= smallestSize(layout) && logSizes.contains($0) } ?? false
    }

    /// Maximum number of bytes of the whole file.
    package var logSize: UInt64
    /// Drawn anew for each log file, each mount that writes entries, and after an entry written in part. Part of every
    /// tag's nonce. 0 before the first entry.
    package var salt: UInt64 = 0
    /// The first entry that may not be in place: its sequence number and offset.
    package var startSequence: UInt64 = 1
    package var startOffset: UInt64 = areaSize
    /// The parsed tag, or zeros.
    package private(set) var tag = [UInt8](repeating: 0, count: LogEntry.tagSize)

    package init(logSize: UInt64) { self.logSize = logSize }

    /// The 64 bytes with `tag`, which authenticates bytes 0…47.
    package var bytes: [UInt8] {
        var bytes = Self.magic + [UInt8](repeating: 0, count: Self.tagOffset - Self.magic.count) + tag
        bytes.storeLittleEndian64(logSize, at: 16)
        bytes.storeLittleEndian64(salt, at: 24)
        bytes.storeLittleEndian64(startSequence, at: 32)
        bytes.storeLittleEndian64(startOffset, at: 40)
        return bytes
    }

    /// The first half of the tag's nonce, unique under the salt among entries and headers.
    package var nonce: UInt64 { 1 << 63 | startSequence }

    /// Parses 64 bytes without authenticating them. Returns nil if they are no header.
    package init?(parsing bytes: [UInt8]) {
        guard bytes.count == Self.size, bytes.starts(with: Self.magic) else { return nil }
        logSize = bytes.littleEndian64(at: 16)
        salt = bytes.littleEndian64(at: 24)
        startSequence = bytes.littleEndian64(at: 32)
        startOffset = bytes.littleEndian64(at: 40)
        tag = Array(bytes[Self.tagOffset...])
        guard Self.logSizes.contains(logSize), Self.sequences.contains(startSequence),
            (Self.areaSize...logSize).contains(startOffset), startOffset % LogEntry.alignment == 0
        else { return nil }
        if salt == 0 && self != LogHeader(logSize: logSize) { return nil }
    }
}
