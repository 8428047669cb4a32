import Testing
import VaultFormat

@Suite struct JournalSlotTests {
    private func slot(fileID: UInt64, chunkIndex: UInt64, record: [UInt8], chunkSize: Int = 4096) -> [UInt8] {
        var slot = [UInt8](repeating: 0xAA, count: JournalSlot.size(chunkSize: chunkSize))
        slot.withUnsafeMutableBytes { slot in
            record.withUnsafeBytes {
                JournalSlot.serialized(fileID: fileID, chunkIndex: chunkIndex, record: $0, into: slot)
            }
        }
        return slot
    }

    private func parse(
        _ slot: [UInt8], chunkSize: Int = 4096
    ) -> (fileID: UInt64, chunkIndex: UInt64, recordSize: Int)? {
        slot.withUnsafeBytes { JournalSlot.parse($0, chunkSize: chunkSize) }
    }

    @Test("Journal-1: sizes")
    func sizes() {
        #expect(JournalSlot.count == 64)
        #expect(JournalSlot.size(chunkSize: 4096) == 4152)
        #expect(JournalSlot.journalSize(chunkSize: 4096) == 265_728)
    }

    @Test("Journal-1: a slot lies as the specification says and comes back", arguments: [33, 34, 936, 4127, 4128])
    func roundTrip(recordSize: Int) throws {
        let record = (0..<recordSize).map { UInt8(truncatingIfNeeded: $0) }
        let slot = slot(fileID: 0x0102_0304_0506_0708, chunkIndex: 0x1112, record: record)
        let expected: [UInt8] = [8, 7, 6, 5, 4, 3, 2, 1, 0x12, 0x11, 0, 0, 0, 0, 0, 0]
        #expect(Array(slot[..<16]) == expected)
        #expect(Array(slot[16..<24]) == [UInt8(recordSize & 0xFF), UInt8(recordSize >> 8), 0, 0, 0, 0, 0, 0])
        #expect(Array(slot[JournalSlot.recordOffset...].prefix(recordSize)) == record)
        let parsed = try #require(parse(slot))
        #expect(parsed == (0x0102_0304_0506_0708, 0x1112, recordSize))
    }

    @Test("Journal-1: a slot freed is free; its record stays where it was")
    func freed() {
        var bytes = slot(fileID: 7, chunkIndex: 1, record: [UInt8](repeating: 1, count: 40))
        bytes.withUnsafeMutableBytes { JournalSlot.free($0) }
        #expect(parse(bytes) == nil)
        #expect(bytes[8] == 1)
        #expect(parse([UInt8](repeating: 0, count: 4152)) == nil)
    }

    @Test(
        "Journal-1: record sizes outside 33…c + 32 are nonsense",
        arguments: [0, 1, 32, 4129, 1 << 32, 1 << 63, .max] as [UInt64])
    func nonsense(recordSize: UInt64) {
        var slot = slot(fileID: 7, chunkIndex: .max, record: [UInt8](repeating: 1, count: 4128))
        for index in 0..<8 { slot[16 + index] = UInt8(truncatingIfNeeded: recordSize >> UInt64(8 * index)) }
        #expect(parse(slot) == nil)
    }

    @Test("Journal-1, Conventions-5: slots cut short, and slots that do not lie on 8 bytes")
    func cutShort() {
        let whole = slot(fileID: 7, chunkIndex: 1, record: [UInt8](repeating: 1, count: 40))
        for count in 0..<64 { #expect(parse(Array(whole[..<count])) == nil) }
        #expect(parse(Array(whole[..<64])) != nil)
        let shifted = [0] + whole
        let parsed = shifted.withUnsafeBytes {
            JournalSlot.parse(UnsafeRawBufferPointer(rebasing: $0[1...]), chunkSize: 4096)
        }
        #expect(parsed?.recordSize == 40)
    }

    @Test("Journal-3: a partial record sets the end; a full one only where the backing file stops before its end")
    func recovery() {
        let layout = ChunkLayout(chunkSize: 4096)
        func size(_ backingSize: UInt64, _ chunkIndex: UInt64, _ recordSize: Int) -> UInt64 {
            JournalSlot.recoveredBackingSize(
                backingSize, chunkIndex: chunkIndex, recordSize: recordSize, layout: layout)
        }
        #expect(size(9224, 1, 936) == 5192, "truncation from 9000 to 5000 bytes, size not yet set")
        #expect(size(5192, 1, 1036) == 5292, "growth of the last chunk by 100 bytes, cut short")
        #expect(size(5200, 1, 4128) == 8384, "growth to a full chunk, cut short")
        #expect(size(9224, 1, 4128) == 9224, "overwrite inside the file")
        #expect(size(9224, 0, 4128) == 9224, "overwrite of the first chunk")
        #expect(size(.max, .max, 4128) == .max)
        #expect(size(0, .max, 33) == .max)
    }
}
