/// One slot of `vaultfs.journal` (FileFormat, Journal): file id 8 ‖ LE64 chunk index ‖ LE64 record size ‖ record.
package enum JournalSlot {
    /// Slots in a journal.
    package static let count = 64
    /// Bytes before the record.
    package static let recordOffset = 24

    /// Bytes from one slot to the next: room for a full record.
    package static func size(chunkSize: Int) -> Int { chunkSize + ChunkLayout.recordOverhead + recordOffset }

    /// Bytes of a whole journal.
    package static func journalSize(chunkSize: Int) -> Int { count * size(chunkSize: chunkSize) }

    /// Writes a slot over the start of `slot`, which has room for it. The bytes after the record stay.
    ///
    /// The file id goes last: a slot whose writing was cut short still counts as free. (Were it seen half-written, the
    /// record's tag would not verify and nothing would come of it either.)
    package static func serialized(
        fileID: UInt64, chunkIndex: UInt64, record: UnsafeRawBufferPointer, into slot: UnsafeMutableRawBufferPointer
    ) {
        precondition(
            record.count <= slot.count - recordOffset, "internal error: a record of \(record.count) bytes in a slot")
        UnsafeMutableRawBufferPointer(rebasing: slot[recordOffset...]).copyMemory(from: record)
        slot.storeLittleEndian64(UInt64(record.count), at: 16)
        slot.storeLittleEndian64(chunkIndex, at: 8)
        slot.storeLittleEndian64(fileID, at: 0)
    }

    /// Zeroes the file id: the slot is free.
    package static func free(_ slot: UnsafeMutableRawBufferPointer) { slot.storeLittleEndian64(0, at: 0) }

    /// The content that a slot claims, or nil for a free or malformed one. The journal proves nothing: only the tag of
    /// the record, `recordSize` bytes at `recordOffset`, does.
    package static func parse(
        _ slot: UnsafeRawBufferPointer, chunkSize: Int
    ) -> (fileID: UInt64, chunkIndex: UInt64, recordSize: Int)? {
        guard slot.count >= recordOffset else { return nil }
        let (fileID, chunkIndex) = (slot.littleEndian64(at: 0), slot.littleEndian64(at: 8))
        let overhead = ChunkLayout.recordOverhead
        guard fileID != 0, let recordSize = Int(exactly: slot.littleEndian64(at: 16)),
            recordSize > overhead, recordSize <= chunkSize + overhead, recordSize <= slot.count - recordOffset
        else { return nil }
        return (fileID, chunkIndex, recordSize)
    }
}

extension JournalSlot {
    /// The size of an unsealed file's backing file once a slot's record has taken the place of record `chunkIndex`.
    ///
    /// A partial record is the last: it ends the file there. A full one leaves the end as it is,
    /// unless the backing file stops before the record does.
    package static func recoveredBackingSize(
        _ backingSize: UInt64, chunkIndex: UInt64, recordSize: Int, layout: ChunkLayout
    ) -> UInt64 {
        let (end, overflow) = layout.recordOffset(ofChunk: chunkIndex).addingReportingOverflow(UInt64(recordSize))
        let recordEnd = overflow ? .max : end
        return recordSize < layout.recordSize ? recordEnd : max(backingSize, recordEnd)
    }
}
