import Foundation
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import VaultStore

/// A file with holes, extended on disk, as seen by programs that skip holes (lseek(2)).
@Suite(.timeLimit(.minutes(60))) struct ExtendedSparseFileTests {
    private static let c = 4096
    private let fixture: TestStore

    init() throws { fixture = try TestStore() }

    /// Makes a file of data, a hole of 1 MiB or more, and perhaps data again.
    private func make(length: Int, dataAtEnd: Int, isSealed: Bool = true) throws {
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        try file.put(pattern(5000), at: 0)
        try file.truncate(to: length)
        try file.put(pattern(dataAtEnd, seed: 2), at: length - dataAtEnd)
        if isSealed { #expect(try file.sealInPlace()) }
        try store.log.checkpoint(.end)
    }

    /// Copies as programs do that copy data and skip holes, up to the length shown by stat(2).
    private func copied(_ file: EncryptedFile) throws -> [UInt8] {
        var copy = [UInt8](repeating: 0, count: Int(file.length))
        var offset: UInt64 = 0
        while let data = try file.seek(from: offset, toHole: false) {
            let end = try #require(try file.seek(from: data, toHole: true))
            #expect(data >= offset && end > data)
            var position = Int(data)
            while position < Int(end) {
                let piece = try file.get(min(100_000, Int(end) - position), at: position)
                if piece.isEmpty { break }
                copy.replaceSubrange(position..<(position + piece.count), with: piece)
                position += piece.count
            }
            offset = end
        }
        return copy
    }

    @Test(
        "Store-3: the bytes past a sealed length are unreadable data, and no hole",
        arguments: [2_000_000, 2_000_000 / c * c, 2_000_001], [0, 1, 5000])
    func sealed(length: Int, dataAtEnd: Int) throws {
        try make(length: length, dataAtEnd: dataAtEnd)
        let whole = try copied(try fixture.reopen(in: try fixture.open(isReadOnly: true)))
        let before = try fixture.bytes().count
        for added in [33, 100, Self.c + 32, 1_000_000] {
            #expect(truncate(fixture.path("file"), off_t(before + added)) == 0)
            let file = try fixture.reopen(in: try fixture.open(isReadOnly: true))
            let longer = Int(file.length)
            guard longer > length else { continue }
            damage { _ = try copied(file) }
            for offset in [length, (length + longer) / 2, longer - 1] {
                #expect(try file.seek(from: UInt64(offset), toHole: false) == UInt64(offset))
                #expect(try file.seek(from: UInt64(offset), toHole: true) == UInt64(longer))
            }
            #expect(try file.seek(from: UInt64(longer), toHole: false) == nil)
            let data = try #require(try file.seek(from: 1_000_000, toHole: false))
            #expect(data <= length && data > 1_000_000)
            let store = try fixture.open()
            let writer = try fixture.reopen(in: store)
            try writer.prepareForWriting()
            #expect(try copied(writer) == whole)
            try store.log.checkpoint(.end)
            #expect(try fixture.bytes().count == before)
        }
    }

    @Test(
        "A search for data ends, even if bytes follow a last record that is a hole",
        arguments: [true, false], [1, 32, 5000])
    func behindHole(isSealed: Bool, count: Int) throws {
        // Let the last record end on the page before the written one.
        let length = 300 * Self.c + 4096 - (128 + 300 * (Self.c + 32)) % 4096 - 32
        let file = try fixture.create(in: try fixture.open())
        try file.truncate(to: length)
        if isSealed { #expect(try file.sealInPlace()) }
        let size = try fixture.bytes().count
        try #require(size % 4096 == 0)
        let backing = try Descriptor(at: fixture.root, Component(ascii(fixture.entry("file"))), flags: O_WRONLY)
        try pattern(count).withUnsafeBytes { try backing.write($0, at: UInt64(size)) }
        let reader = try fixture.reopen(in: try fixture.open(isReadOnly: true))
        let data = try reader.seek(from: 1_000_000, toHole: false)
        if reader.length == length { #expect(data == nil) } else { #expect(try #require(data) <= length) }
    }

    /// The changes listed in the manual under "Not detected". All others must be detected.
    @Test(
        "Store-6: an unsealed file with holes can be extended by zeros or cut between chunks without an error")
    func unsealed() throws {
        let length = 300 * Self.c
        try make(length: length, dataAtEnd: 2 * Self.c, isSealed: false)
        let whole = try copied(try fixture.reopen(in: try fixture.open(isReadOnly: true)))
        let size = try fixture.bytes().count
        // If the file has holes and a whole last chunk, an extension reads as zeros, even by a reader that skips holes.
        #expect(truncate(fixture.path("file"), off_t(size + 3 * (Self.c + 32))) == 0)
        let extended = try fixture.reopen(in: try fixture.open(isReadOnly: true))
        let zeros = [UInt8](repeating: 0, count: 3 * Self.c)
        #expect(try copied(extended) == whole + zeros)
        #expect(try extended.get(zeros.count, at: length) == zeros)
        // Any other extension is an error.
        try fixture.change { $0.replaceSubrange((size + 10)..., with: pattern($0.count - size - 10)) }
        damage { _ = try copied(try fixture.reopen(in: try fixture.open(isReadOnly: true))) }
        // Cut between two chunks, and in a hole.
        for (backing, plain) in [
            (size - Self.c - 32, length - Self.c), (128 + 100 * (Self.c + 32) + 50, 100 * Self.c + 18),
        ] {
            #expect(truncate(fixture.path("file"), off_t(backing)) == 0)
            #expect(try copied(try fixture.reopen(in: try fixture.open(isReadOnly: true))) == Array(whole[..<plain]))
        }
        // A cut inside a chunk of data is an error.
        #expect(truncate(fixture.path("file"), off_t(128 + 500)) == 0)
        damage { _ = try copied(try fixture.reopen(in: try fixture.open(isReadOnly: true))) }
    }

    @Test(
        "Store-6: an unsealed file without holes cannot be extended without an error", arguments: [2 * c, 2 * c + 100])
    func unsealedWithoutHoles(length: Int) throws {
        try fixture.make(pattern(length), isSealed: false)
        let size = try fixture.bytes().count
        for added in [33, Self.c + 32, 2_000_000] {
            #expect(truncate(fixture.path("file"), off_t(size + added)) == 0)
            damage { _ = try copied(try fixture.reopen(in: try fixture.open(isReadOnly: true))) }
        }
    }
}
