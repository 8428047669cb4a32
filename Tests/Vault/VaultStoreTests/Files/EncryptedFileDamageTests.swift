import FileSystem
import Glibc
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// An attacker's changes of a backing file, without a key (FileFormat: What the format promises).
@Suite struct EncryptedFileDamageTests {
    private static let c = 4096
    private static let size = 4 * c + 777

    @Test("Header-1: a header with one bit changed is refused", arguments: [true, false])
    func headerBits(isSealed: Bool) throws {
        let fixture = try TestStore()
        try fixture.make(pattern(100), isSealed: isSealed)
        let store = try fixture.open()
        let good = try fixture.bytes()
        for bit in 0..<(128 * 8) where bit % 3 == 0 || bit / 8 >= 96 {
            var bytes = good
            bytes[bit / 8] ^= 1 << (bit % 8)
            try fixture.write(bytes)
            damage { _ = try fixture.reopen(in: store) }
        }
        try fixture.write(good)
        #expect(try fixture.reopen(in: store).contents() == pattern(100))
    }

    /// Changes the file, and expects errors from exactly these chunks, by their names, one by one and in runs.
    private func expectDamage(
        _ damagedChunks: Set<Int>, isSparse: Bool = false, sourceLocation: SourceLocation = #_sourceLocation,
        _ body: (TestStore, inout [UInt8]) throws -> Void
    ) throws {
        let fixture = try TestStore()
        let content = pattern(Self.size)
        try fixture.make(content)
        try fixture.change { try body(fixture, &$0) }
        let store = try fixture.open()
        let file = try fixture.reopen(in: store)
        for chunk in 0..<5 {
            let range = (chunk * Self.c)..<min(content.count, (chunk + 1) * Self.c)
            if damagedChunks.contains(chunk) {
                let reason = damage(sourceLocation: sourceLocation) { _ = try file.get(10, at: range.lowerBound + 5) }
                #expect(reason?.hasPrefix("chunk \(chunk):") == true, sourceLocation: sourceLocation)
                damage(sourceLocation: sourceLocation) { try file.put([1], at: range.lowerBound) }
            } else {
                #expect(try file.get(range.count, at: range.lowerBound) == Array(content[range]))
            }
        }
        if let first = damagedChunks.min() {
            let reason = damage(sourceLocation: sourceLocation) { _ = try file.contents() }
            #expect(reason?.hasPrefix("chunk \(first):") == true, sourceLocation: sourceLocation)
            #expect(store.counters.damagedReads.total > 0, sourceLocation: sourceLocation)
            // A write of the whole chunk repairs it.
            let end = min(Self.size, (first + 1) * Self.c)
            try file.put(Array(content[(first * Self.c)..<end]), at: first * Self.c)
            #expect(try file.get(100, at: first * Self.c) == Array(content[(first * Self.c)..<(first * Self.c + 100)]))
        }
    }

    @Test("Chunks-1: a record with one bit changed is an error, the others are not", arguments: 0..<5)
    func recordBit(chunk: Int) throws {
        for place in [0, 15, 16, 300, 776, -16, -1] {
            try expectDamage([chunk]) { fixture, bytes in
                let range = fixture.recordRange(UInt64(chunk), length: Self.size)
                bytes[place < 0 ? range.upperBound + place : range.lowerBound + place] ^= 0x10
            }
        }
    }

    @Test("Chunks-1: records exchanged, copied, or brought from another file are errors")
    func movedRecords() throws {
        try expectDamage([1, 3]) { fixture, bytes in
            let (a, b) = (fixture.recordRange(1, length: Self.size), fixture.recordRange(3, length: Self.size))
            let record = Array(bytes[a])
            bytes.replaceSubrange(a, with: bytes[b])
            bytes.replaceSubrange(b, with: record)
        }
        try expectDamage([2]) { fixture, bytes in
            let range = fixture.recordRange(0, length: Self.size)
            bytes.replaceSubrange(fixture.recordRange(2, length: Self.size), with: bytes[range])
        }
        try expectDamage([0]) { fixture, bytes in
            try fixture.make(pattern(Self.size), entry: "other")
            let range = fixture.recordRange(0, length: Self.size)
            bytes.replaceSubrange(range, with: try fixture.bytes("other")[range])
        }
    }

    @Test("Holes-1: a zeroed record is an error in a file without holes", arguments: [0, 2, 4])
    func zeroed(chunk: Int) throws {
        try expectDamage([chunk]) { fixture, bytes in
            for index in fixture.recordRange(UInt64(chunk), length: Self.size) { bytes[index] = 0 }
        }
    }

    @Test(
        "Store-4: a sealed file cut short is not opened, and can be truncated to nothing", arguments: [1, 400, 20000])
    func cut(bytes count: Int) throws {
        let fixture = try TestStore()
        try fixture.make(pattern(Self.size))
        try fixture.change { $0.removeLast(min(count, $0.count - 128)) }
        let store = try fixture.open()
        #expect(damage { _ = try fixture.reopen(in: store) }?.hasPrefix("it should be \(Self.size) bytes long") == true)
        let secret = try fixture.bytes()[..<64]
        try expectEmptied(fixture, store)
        #expect(try fixture.bytes()[..<64] == secret, "Store-5: with the same secret")
    }

    @Test("Store-7: a file under 128 bytes is not opened, and can be truncated to nothing", arguments: [0, 1, 127])
    func withoutHeader(bytes count: Int) throws {
        let fixture = try TestStore()
        try fixture.make(pattern(10))
        try fixture.change { $0.removeLast($0.count - count) }
        let store = try fixture.open()
        #expect(damage { _ = try fixture.reopen(in: store) }?.hasPrefix("header:") == true)
        try expectEmptied(fixture, store)
    }

    /// Truncates to 0, and expects the file to work like a new one.
    private func expectEmptied(_ fixture: TestStore, _ store: Store) throws {
        let descriptor = try Descriptor(at: fixture.root, Component(ascii(fixture.entry("file"))), flags: O_RDWR)
        let file = try FileOpening(descriptor, in: store).openTruncated(class: .complete)
        #expect(file.length == 0)
        try store.log.checkpoint(.due)
        #expect(try fixture.bytes().count == 128)
        #expect(try !fixture.header().isSealed)
        try file.put(pattern(5000, seed: 9), at: 0)
        #expect(try file.contents() == pattern(5000, seed: 9))
        #expect(try fixture.reopen(in: store).contents() == pattern(5000, seed: 9))
    }

    /// Data appended to a sealed file by an attacker.
    enum Tail: CaseIterable { case bytes, wholeRecords, zeros, ownRecord }

    @Test(
        "Store-3: past the length in a sealed header, reading is an error; a writer cuts the file back",
        arguments: [0, 1, c - 1, c, c + 777, 3 * c], Tail.allCases)
    func unsealedTail(length: Int, tail: Tail) throws {
        let fixture = try TestStore()
        let content = pattern(length)
        try fixture.make(content)
        let sealed = try fixture.bytes()
        try fixture.change { bytes in
            switch tail {
            case .bytes: bytes += pattern(100, seed: 5)
            case .wholeRecords: bytes += pattern(3 * 4128, seed: 5)
            case .zeros: bytes += [UInt8](repeating: 0, count: 9000)
            case .ownRecord: bytes += bytes.count > 128 ? bytes[128...] : ArraySlice(pattern(50))
            }
        }
        // Skip fragments too short to be a chunk, because they are no tail.
        let longer = fixture.layout.plaintextLength(ofBackingSize: UInt64(try fixture.bytes().count))
        try #require(longer > UInt64(length))
        let store = try fixture.open(isReadOnly: true)
        let file = try fixture.reopen(in: store)
        #expect(file.parts.hasUnsealedTail)
        #expect(file.length == longer)
        if length > 0 {
            #expect(try file.get(length + 50) == content)
            #expect(try file.get(Int(longer)) == content)
        }
        damage { _ = try file.get(1, at: length) }
        damage { _ = try file.get(Int(longer) - length, at: length) }
        #expect(try file.get(1, at: Int(longer)) == [])

        let writable = try fixture.reopen(in: try fixture.open())
        #expect(try writable.get(length) == content)
        #expect(try fixture.bytes() != sealed, "reading alone does not cut")
        try writable.prepareForWriting()
        #expect(writable.length == UInt64(length))
        #expect(!writable.parts.hasUnsealedTail)
        #expect(try writable.contents() == content)
        #expect(try fixture.bytes() == sealed)
        try writable.put([1, 2, 3], at: length)
        #expect(try writable.contents() == content + [1, 2, 3])
    }

    @Test("Store-3: a file that grew after its header was sealed keeps the part that the header covers")
    func lostUnseal() throws {
        // Simulates a power cut that lost the unsealing but not the growth: the last record is longer.
        let fixture = try TestStore()
        let content = pattern(Self.c + 100)
        try fixture.make(content)
        let sealedHeader = try fixture.bytes()[..<128]
        let store = try fixture.open()
        let file = try fixture.reopen(in: store)
        try file.put(pattern(Self.c, seed: 3), at: content.count)
        try store.log.checkpoint(.end)
        try fixture.change { $0.replaceSubrange(..<128, with: sealedHeader) }
        let reader = try fixture.reopen(in: try fixture.open(isReadOnly: true))
        #expect(try reader.get(2 * Self.c) == content)
        damage { _ = try reader.get(1, at: content.count) }
        let other = try fixture.open()
        let writer = try fixture.reopen(in: other)
        try writer.prepareForWriting()
        #expect(try writer.contents() == content)
        try other.log.checkpoint(.due)
        #expect(try fixture.reopen(in: try fixture.open()).contents() == content)
    }

    @Test("A sealed header is not written over another file")
    func headerOfAnotherFile() throws {
        let fixture = try TestStore()
        try fixture.make(pattern(Self.size))
        try fixture.make(pattern(Self.size, seed: 2), entry: "other")
        let header = try fixture.bytes("other")[..<128]
        try fixture.change { $0.replaceSubrange(..<128, with: header) }
        let file = try fixture.reopen(in: try fixture.open())
        #expect(damage { _ = try file.contents() } == "chunk 0: its data is damaged")
    }

    @Test("A file that is cut while it is open is an error for the missing data, and for nothing else")
    func cutWhileOpen() throws {
        let fixture = try TestStore()
        let content = pattern(Self.size)
        try fixture.make(content)
        let file = try fixture.reopen(in: try fixture.open(cacheSize: 0))
        try fixture.change { $0.removeLast($0.count - fixture.recordRange(3, length: Self.size).lowerBound - 50) }
        #expect(try file.get(3 * Self.c) == Array(content[..<(3 * Self.c)]))
        #expect(damage { _ = try file.contents() }?.hasPrefix("chunk 3:") == true)
        #expect(damage { _ = try file.get(1, at: 4 * Self.c + 1) }?.hasPrefix("chunk 4:") == true)
        #expect(damage { try file.put([1], at: 3 * Self.c + 1) }?.hasPrefix("chunk 3:") == true)
    }
}
