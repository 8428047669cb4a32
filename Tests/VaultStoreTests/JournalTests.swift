import FileSystem
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// The journal that a dead daemon leaves, and its use by the next mount (FileFormat: Journal). The torn states are made
/// by hand, from backing files copied before and after a write.
@Suite struct JournalTests {
    private static let c = 4096
    private static let sizes = [c, 3 * c, 2 * c + 500]

    /// One moment of a write, cut short.
    private struct Torn {
        let fixture: TestStore
        let fileID: UInt64
        let old: [UInt8]
        let new: [UInt8]
        let oldBytes: [UInt8]
        let newBytes: [UInt8]

        /// - Parameter change: what turns the file of `old` into that of `new`.
        init(
            _ old: [UInt8], isSealed: Bool, chunkSize: Int = JournalTests.c, _ change: (EncryptedFile) throws -> Void
        ) throws {
            fixture = try TestStore(chunkSize: chunkSize)
            try fixture.make(old, isSealed: isSealed)
            self.old = old
            oldBytes = try fixture.bytes()
            let file = try fixture.reopen(in: try fixture.open())
            fileID = file.fileID
            try change(file)
            new = try file.contents()
            newBytes = try fixture.bytes()
        }

        /// Record `chunk` as it is after the write.
        func newRecord(_ chunk: UInt64) -> ArraySlice<UInt8> {
            newBytes[fixture.recordRange(chunk, length: new.count)]
        }

        /// The content that mounts read: first a read-only one, which must not write, then two that may.
        func outcome() throws -> [UInt8] {
            let before = (try fixture.bytes(), try? fixture.bytes("vaultfs.journal"))
            let readOnly = try fixture.open(isReadOnly: true)
            let seen = try fixture.reopen(in: readOnly).contents()
            #expect(try fixture.bytes() == before.0)
            let journal = try? fixture.bytes("vaultfs.journal")
            #expect(journal == before.1)
            let store = try fixture.open()
            let file = try fixture.reopen(in: store)
            let recovered = try file.contents()
            #expect(file.length == UInt64(recovered.count))
            #expect(seen == recovered, "a read-only mount reads something else")
            let after = try fixture.bytes()
            #expect(after.count == Int(fixture.layout.backingSize(ofPlaintextLength: file.length)))
            #expect(try fixture.slotsInUse().isEmpty)
            #expect(!store.journal.isHoldingRecords)
            #expect(try fixture.reopen(in: try fixture.open()).contents() == recovered)
            return recovered
        }
    }

    @Test("Journal-2, Journal-4: an overwritten record torn anywhere is the slot's", arguments: [true, false], sizes)
    func tornOverwrite(isSealed: Bool, size: Int) throws {
        let old = pattern(size)
        let chunk = UInt64((size - 1) / Self.c)
        let torn = try Torn(old, isSealed: isSealed) { try $0.put(pattern(100, seed: 2), at: size - 300) }
        let range = torn.fixture.recordRange(chunk, length: size)
        for cut in [1, 16, 20, range.count / 2, range.count - 16, range.count - 1, range.count] {
            let part = range.prefix(cut)
            // One random byte of the two may be the same, and then nothing is torn.
            if torn.newBytes[part] == torn.oldBytes[part] { continue }
            try torn.fixture.write(torn.oldBytes)
            try torn.fixture.change { $0.replaceSubrange(part, with: torn.newBytes[part]) }
            try torn.fixture.fillSlot(9, fileID: torn.fileID, chunk: chunk, record: torn.newRecord(chunk))
            #expect(try torn.outcome() == torn.new, "torn at \(cut)")
        }
    }

    @Test("Store-10: a slot whose record verifies is let go", arguments: [true, false])
    func slotLeft(isSealed: Bool) throws {
        let torn = try Torn(pattern(3 * Self.c), isSealed: isSealed) { try $0.put([1, 2, 3], at: Self.c + 5) }
        // Died before the record was touched, or after it was complete and before the slot was freed.
        for (bytes, content) in [(torn.oldBytes, torn.old), (torn.newBytes, torn.new)] {
            try torn.fixture.write(bytes)
            try torn.fixture.fillSlot(63, fileID: torn.fileID, chunk: 1, record: torn.newRecord(1))
            #expect(try torn.outcome() == content)
        }
    }

    @Test("Journal-3: growth of the last chunk, torn", arguments: [100, c - 500, 3 * c])
    func tornGrowth(added: Int) throws {
        let old = pattern(Self.c + 500)
        let torn = try Torn(old, isSealed: false) { try $0.put(pattern(added, seed: 2), at: old.count) }
        let record = torn.newRecord(1)
        let start = torn.fixture.recordRange(1, length: torn.new.count).lowerBound
        let chunkEnd = min(2 * Self.c, torn.new.count)
        // The slot is filled, then the file grows, then the start of the record is replaced.
        for end in [torn.oldBytes.count + 1, torn.oldBytes.count + 60, start + record.count - 1, start + record.count] {
            var bytes = torn.oldBytes
            let grown = min(end, torn.newBytes.count)
            bytes += torn.newBytes[bytes.count..<grown]
            try torn.fixture.write(bytes)
            try torn.fixture.fillSlot(0, fileID: torn.fileID, chunk: 1, record: record)
            #expect(try torn.outcome() == Array(torn.new[..<chunkEnd]), "file of \(grown) bytes")
        }
        // All of it but one byte of the record.
        var bytes = torn.newBytes
        bytes[start + 3] ^= 1
        try torn.fixture.write(bytes)
        try torn.fixture.fillSlot(0, fileID: torn.fileID, chunk: 1, record: record)
        #expect(try torn.outcome() == torn.new)
    }

    @Test("Journal-3: a truncation inside a chunk, between the write and the change of size", arguments: [true, false])
    func tornTruncation(isSealed: Bool) throws {
        let old = pattern(9000)
        let torn = try Torn(old, isSealed: isSealed) { try $0.truncate(to: 5000) }
        let range = torn.fixture.recordRange(1, length: 5000)
        let record = torn.newRecord(1)
        #expect(record.count == 936)
        // One byte alone may be the same by chance.
        for cut in [0, 16, 500, 936] {
            var bytes = torn.oldBytes
            // The header is unsealed by then.
            bytes.replaceSubrange(0..<128, with: torn.newBytes[..<128])
            bytes.replaceSubrange(range.prefix(cut), with: record.prefix(cut))
            try torn.fixture.write(bytes)
            try torn.fixture.fillSlot(3, fileID: torn.fileID, chunk: 1, record: record)
            let outcome = try torn.outcome()
            #expect(outcome == (cut == 0 ? torn.old : torn.new), "cut at \(cut)")
        }
    }

    @Test("Journal-4: in a sealed file a slot of another size is none")
    func otherSizeInSealedFile() throws {
        let torn = try Torn(pattern(9000), isSealed: true) { try $0.truncate(to: 5000) }
        try torn.fixture.write(torn.oldBytes)
        try torn.fixture.change { $0[torn.fixture.recordRange(1, length: 9000).lowerBound] ^= 1 }
        try torn.fixture.fillSlot(3, fileID: torn.fileID, chunk: 1, record: torn.newRecord(1))
        let file = try torn.fixture.reopen(in: try torn.fixture.open())
        #expect(file.length == 9000)
        #expect(damage { _ = try file.get(1, at: 5000) } == "chunk 1: tag does not verify")
        #expect(try file.get(Self.c) == Array(torn.old[..<Self.c]))
        #expect(try torn.fixture.slotsInUse() == [3])
    }

    @Test("Journal-2: two slots for one record, one of them cut short", arguments: [true, false])
    func twoSlots(goodFirst: Bool) throws {
        let torn = try Torn(pattern(3 * Self.c), isSealed: true) { try $0.put([1, 2, 3], at: Self.c) }
        let record = Array(torn.newRecord(1))
        var garbage = record
        garbage[2000...] = ArraySlice(repeating: 0, count: record.count - 2000)
        try torn.fixture.write(torn.oldBytes)
        try torn.fixture.change { $0[torn.fixture.recordRange(1, length: 3 * Self.c).lowerBound + 50] ^= 1 }
        let slots = goodFirst ? [record, garbage] : [garbage, record]
        for (slot, record) in slots.enumerated() {
            try torn.fixture.fillSlot(slot, fileID: torn.fileID, chunk: 1, record: record)
        }
        #expect(try torn.outcome() == torn.new)
    }

    @Test("Store-10: the slot of a file that is not there stays, and is in nobody's way")
    func unknownFile() throws {
        let torn = try Torn(pattern(Self.c), isSealed: true) { try $0.put([1], at: 0) }
        for slot in 0..<40 {
            try torn.fixture.fillSlot(slot, fileID: 99, chunk: UInt64(slot), record: torn.newRecord(0))
        }
        let store = try torn.fixture.open()
        let file = try torn.fixture.reopen(in: store)
        let large = pattern(100 * Self.c)
        try file.put(large, at: 0)
        try file.put(large, at: 0)
        #expect(try file.contents() == large)
        #expect(store.journal.isHoldingRecords)
        #expect(try torn.fixture.slotsInUse() == Array(0..<40))
    }

    @Test("Journal-1: whatever the journal holds, files that verify are as they are", arguments: 0..<8)
    func garbage(seed: UInt64) throws {
        let content = pattern(2 * Self.c + 5)
        let fixture = try TestStore()
        try fixture.make(content)
        let size = JournalSlot.journalSize(chunkSize: Self.c)
        var generator = SeededGenerator(seed: seed)
        var journal = generator.bytes(Int.random(in: 0...size, using: &generator))
        let fileID = try fixture.header().fileID
        // Half of the slots look as if they held a record of the file.
        for slot in stride(from: 0, to: 64, by: 2) {
            let start = slot * JournalSlot.size(chunkSize: Self.c)
            guard start + 24 <= journal.count else { break }
            for (index, value) in [fileID, UInt64(slot) / 2, UInt64.random(in: 0...4200, using: &generator)]
                .enumerated()
            {
                withUnsafeBytes(of: value.littleEndian) { bytes in
                    journal.replaceSubrange((start + 8 * index)..<(start + 8 * index + 8), with: bytes)
                }
            }
        }
        try fixture.write(journal, to: "vaultfs.journal")
        #expect(try fixture.reopen(in: try fixture.open(isReadOnly: true)).contents() == content)
        let file = try fixture.reopen(in: try fixture.open())
        #expect(try file.contents() == content)
        try file.put([7], at: 0)
        #expect(try file.contents() == [7] + content.dropFirst())
    }

    @Test(
        "Journal-1: a journal that is no regular file is refused, or done without, without a hang",
        .timeLimit(.minutes(20)))
    func strangeJournal() throws {
        for make in [makeFifo, makeDirectory, makeLink] {
            let fixture = try TestStore()
            make(fixture.path + "/vaultfs.journal")
            #expect(throws: StoreError.self) { try fixture.open() }
            #expect(try fixture.open(isReadOnly: true).problems.count == 1)
        }
    }

    @Test("A hole that is being filled when the daemon dies is a hole or filled", arguments: [0, 1, 1000, 4128])
    func tornHoleFilling(cut: Int) throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        try file.truncate(to: (1 << 20) + 4 * Self.c)
        let oldBytes = try fixture.bytes()
        try file.put(pattern(Self.c), at: Self.c)
        let range = fixture.recordRange(1, length: 1 << 20)
        let record = try fixture.bytes()[range]
        var bytes = oldBytes
        bytes.replaceSubrange(range.prefix(cut), with: record.prefix(cut))
        try fixture.write(bytes)
        try fixture.fillSlot(1, fileID: file.fileID, chunk: 1, record: record)
        // Once in 256 the first byte of an IV is zero too.
        let isHole = record.prefix(cut).allSatisfy { $0 == 0 }
        for isReadOnly in [true, false] {
            let read = try fixture.reopen(in: try fixture.open(isReadOnly: isReadOnly)).get(Self.c, at: Self.c)
            #expect(read == (isHole ? [UInt8](repeating: 0, count: Self.c) : pattern(Self.c)))
        }
    }

    @Test("Store-6: a torn record past what a slot covers is an error, and a write over it mends it")
    func tornAppend() throws {
        let torn = try Torn(pattern(Self.c), isSealed: false) { try $0.put(pattern(600, seed: 3), at: Self.c) }
        try torn.fixture.write(Array(torn.newBytes[..<(torn.oldBytes.count + 400)]))
        let file = try torn.fixture.reopen(in: try torn.fixture.open())
        #expect(file.length == UInt64(Self.c + 368))
        #expect(try file.get(Self.c) == torn.old)
        #expect(damage { _ = try file.get(1, at: Self.c) } == "chunk 1: tag does not verify")
        #expect(damage { try file.put([1], at: Self.c + 2) } == "chunk 1: tag does not verify")
        #expect(try file.seal(ifStill: file.lengthMark, isDurable: true))
        #expect(try !torn.fixture.header().isSealed, "a torn end is not to be vouched for")
        try file.put(pattern(368, seed: 4), at: Self.c)
        #expect(try file.contents() == torn.old + pattern(368, seed: 4))
        try torn.fixture.write(Array(torn.newBytes[..<(torn.oldBytes.count + 400)]))
        let again = try torn.fixture.reopen(in: try torn.fixture.open())
        try again.truncate(to: Self.c)
        #expect(try again.contents() == torn.old)
        #expect(try again.seal(ifStill: again.lengthMark, isDurable: true))
        #expect(try torn.fixture.header().isSealed)
    }
}
