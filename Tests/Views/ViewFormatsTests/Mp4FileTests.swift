import FileSystem
import Foundation
import LinuxSystem
import Synchronization
import TestSupport
import Testing
import VaultCrypto

@testable import ViewFormats

/// A small film of `mp4_files.py`, opened as a view does.
private final class Film {
    let place: ViewPlace
    let bytes: [UInt8]
    let plaintext: [UInt8]
    private let store: KeyStore
    let work = Mp4Work()
    private var token: UInt64 = 0

    /// - Parameter isSparse: true for a large film, which cannot be read as a whole.
    init(_ kind: String, isSparse: Bool = false) throws {
        place = try ViewPlace(cacheSize: 1 << 16)
        let directory = place.directory.path
        try Command(
            [Products.python, Products.program("views/mp4_files.py"), kind, directory] + (isSparse ? [] : ["small"])
        )
        .run().succeeded()
        func read(_ tree: String) throws -> [UInt8] {
            isSparse ? [] : Array(try Data(contentsOf: URL(filePath: "\(directory)/\(tree)/film.mp4")))
        }
        (bytes, plaintext) = (try read("source"), try read("originals"))
        let root = Descriptor(owning: Glibc.open("\(directory)/keys", O_RDONLY | O_DIRECTORY | O_CLOEXEC))
        for name in try FileManager.default.contentsOfDirectory(atPath: "\(directory)/keys") {
            try Command(["mv", "\(directory)/keys/\(name)", "\(directory)/keys/\(name).key"]).run().succeeded()
        }
        store = KeyStore(KeySources(root: root))
    }

    deinit { store.stop() }

    /// Opens the film's file on the disk.
    func source() throws -> SourceFile { try place.source("source/film.mp4") }

    /// Opens a file. Returns nil if it is not encrypted MP4.
    func open(_ source: SourceFile) throws -> ChainedFile? {
        token += 1
        let naming = ContentKeys.Naming(directory: [], given: [])
        guard case .protected(let plan) = try Mp4Plan.read(source, naming, work) else { return nil }
        let names = try plan.keyNames(source)
        let keys = try names.map { ($0, try CbcKey(store.fetch($0).key.subrange(0..<16))) }
        let content = ContentKeys(keys, plan.naming, from: store, waits: true)
        return ChainedFile(
            source: source, .samples(try plan.index(source), content), keys: [], token: token, cache: place.cache,
            counters: place.counters)
    }

    /// Returns the whole plaintext of a file with these bytes.
    func read(_ bytes: [UInt8]) throws -> [UInt8]? {
        try open(place.source(of: bytes)).map { try place.read($0, bytes.count + 1, at: 0) }
    }

    /// Returns the offsets of all boxes of a type, anywhere in the file.
    func boxes(_ type: String) -> [Int] {
        bytes.indices.dropFirst(4).filter { bytes[$0...].prefix(4).elementsEqual(type.utf8) }.map { $0 - 4 }
    }

    func box(_ type: String, _ number: Int = 0) throws -> Range<Int> {
        let start = try #require(boxes(type).dropFirst(number).first)
        return start..<(start + bytes[start..<(start + 4)].reduce(0) { $0 << 8 | Int($1) })
    }
}

@Suite("MP4 files", .timeLimit(.minutes(60))) struct Mp4FileTests {
    @Test(
        "200 random ranges equal the whole",
        arguments: [
            "h264", "hevc", "aac", "both", "pattern-5-5", "pattern-10-0", "cbc1", "vectors", "lead", "rotation",
            "auxiliary", "unindexed", "whole",
        ])
    func ranges(kind: String) throws {
        let film = try Film(kind)
        #expect(film.bytes != film.plaintext)
        #expect(same(try #require(try film.read(film.bytes)), film.plaintext))
        var generator = SeededGenerator(seed: 1)
        for _ in 0..<200 {
            let file = try #require(try film.open(film.source()))
            let offset = Int.random(in: 0..<film.bytes.count, using: &generator)
            let count = Int.random(in: 1...3000, using: &generator)
            let found = try film.place.read(file, count, at: offset)
            #expect(same(found, film.plaintext.dropFirst(offset).prefix(count)), "\(count) bytes at \(offset)")
        }
    }

    @Test("a page that is read is not kept in the block cache")
    func uncached() throws {
        let film = try Film("h264")
        let file = try #require(try film.open(film.source()))
        for _ in 0..<2 {
            let counted = try film.place.count(file, 1000, at: film.bytes.count / 2, of: film.plaintext)
            #expect((counted.hits, counted.misses) == (0, 0))
        }
    }

    @Test(
        "ranges that begin and end inside blocks, with reads that a signal ends early",
        arguments: ["h264", "both", "pattern-5-5", "pattern-10-0", "cbc1", "rotation", "whole"])
    func edges(kind: String) throws {
        let film = try Film(kind)
        let file = try #require(try film.open(film.source()))
        var generator = SeededGenerator(seed: 2)
        for number in 0..<400 {
            let offset = Int.random(in: 0..<film.bytes.count, using: &generator)
            let end = Int.random(in: (offset + 1)...min(film.bytes.count, offset + 3000), using: &generator)
            let answer = number % 2 == 0 ? 0 : CallWatcher.inPart
            var found = [UInt8](repeating: 0xEE, count: end - offset)
            try found.withUnsafeMutableBytes { bytes in
                try ReadFault.during(
                    in: film.place.directory.path, { _, _ in answer },
                    { try file.decrypt(at: UInt64(offset), into: bytes, film.place.workspace) })
            }
            #expect(same(found[...], film.plaintext[offset..<end]), "\(offset)-\(end)")
        }
    }

    @Test(
        "every cut and every changed byte of a moov and a moof: an error or as many bytes",
        arguments: ["h264", "cbc1", "rotation", "auxiliary", "whole"])
    func hostile(kind: String) throws {
        let film = try Film(kind)
        var errors = 0
        func attempt(_ bytes: [UInt8]) throws {
            do {
                let found = try film.read(bytes)
                #expect(found.map { $0.count == bytes.count } ?? true)
            } catch is ViewError {
                errors += 1
            }
        }
        for position in try [film.box("moov")] + (kind == "whole" ? [] : [film.box("moof", 1)]) {
            for position in position {
                for value in [0, 0x7F, 0xFF, film.bytes[position] ^ 1] where value != film.bytes[position] {
                    try attempt(film.bytes.changing(position, [value]))
                }
                try attempt(Array(film.bytes[..<position]))
            }
        }
        #expect(errors > 500)
    }

    @Test("a sidx is a hint: whatever it says, the plaintext is the same")
    func lyingIndex() throws {
        let film = try Film("h264")
        let sidx = try film.box("sidx")
        let last = try film.box("moof", 2).lowerBound
        for position in sidx.dropFirst(8) {
            for value in [0, 0x7F, 0xFF, film.bytes[position] ^ 1, film.bytes[position] &+ 8] {
                let bytes = film.bytes.changing(position, [value])
                // Read the last fragment first, because only that uses the hint.
                let file = try #require(try film.open(film.place.source(of: bytes)))
                let found = try film.place.read(file, 2000, at: last)
                #expect(same(found, film.plaintext[last...].prefix(2000)), "\(value) at \(position)")
                #expect(
                    same(try film.place.read(file, last, at: 0), film.plaintext.changing(position, [value])[..<last]))
            }
        }
    }

    @Test("a read needs one pread in a known fragment, three in another one, and eight at first")
    func reads() throws {
        let film = try Film("long", isSparse: true)
        let source = try film.source()
        #expect(source.size > 1 << 30)
        let original = try film.place.source("originals/film.mp4")
        let calls = Mutex(0)
        func count(_ file: @autoclosure () throws -> ChainedFile?, at offset: UInt64) throws -> Int {
            calls.withLock { $0 = 0 }
            let found = try ReadFault.during(
                in: film.place.directory.path,
                { kind, _ in
                    if case .bytes = kind { calls.withLock { $0 += 1 } }
                    return 0
                }, { try film.place.read(#require(try file()), 4096, at: Int(offset)) })
            #expect(same(found, try original.bytes(at: offset, 4096)))
            return calls.withLock { $0 }
        }
        let beginning = try source.bytes(at: 0, 2000)
        let sidx = try #require(beginning.firstRange(of: Array("sidx".utf8))).lowerBound
        let size = beginning[(sidx + 28)...].prefix(4).reduce(0) { $0 << 8 | UInt64($1) }
        func fragment(_ number: UInt64) -> UInt64 { source.size - size * (960 - number) }
        /// Returns the offset of a page in a fragment's media.
        func page(_ number: UInt64) -> UInt64 { fragment(number) / 4096 * 4096 + 8192 }
        let file = try #require(try film.open(source))
        // This includes the moov.
        #expect(try count(film.open(source), at: page(700)) <= 8)
        #expect(try count(file, at: page(700)) <= 6)
        for number in [100, 300, 720, 959] as [UInt64] {
            #expect(try count(file, at: page(number)) <= 3, "fragment \(number)")
            #expect(try count(file, at: page(number) + 4096) == 1, "fragment \(number)")
        }
        // The page is in two fragments, from a box before a moof.
        #expect(try count(film.open(source), at: fragment(700)) < 20)
    }

    @Test("5 GiB with 64-bit sizes")
    func large() throws {
        let film = try Film("huge", isSparse: true)
        let source = try film.source()
        #expect(source.size > 5 << 30)
        let original = try film.place.source("originals/film.mp4")
        let file = try #require(try film.open(source))
        for offset in [source.size - 9000, 0, 5 << 30, source.size / 2, UInt64(UInt32.max) - 2000, source.size - 4096] {
            let count = Int(min(9000, source.size - offset))
            let found = try film.place.read(file, count, at: Int(offset))
            #expect(same(found, try original.bytes(at: offset, count)), "at \(offset)")
        }
    }

    /// A change of one box, and the resulting error.
    struct Refusal: CustomTestStringConvertible, Sendable {
        let kind, box: String
        /// The offset from the beginning of the box.
        let offset: Int
        let bytes: [UInt8]
        let reason: String
        var testDescription: String { reason }
    }

    @Test(
        "refusals name their reason",
        arguments: [
            Refusal(
                kind: "h264", box: "schm", offset: 12, bytes: Array("cenc".utf8), reason: "the scheme cenc is AES-CTR"),
            Refusal(
                kind: "h264", box: "schm", offset: 12, bytes: Array("cens".utf8), reason: "the scheme cens is AES-CTR"),
            Refusal(kind: "h264", box: "schm", offset: 12, bytes: Array("abcd".utf8), reason: "the scheme abcd is not"),
            Refusal(kind: "h264", box: "tenc", offset: 8, bytes: [2], reason: "several keys in one sample"),
            Refusal(kind: "h264", box: "tenc", offset: 12, bytes: [1], reason: "several keys in one sample"),
            Refusal(kind: "h264", box: "tenc", offset: 13, bytes: [0x09], reason: "a pattern that encrypts nothing"),
            Refusal(kind: "h264", box: "tenc", offset: 14, bytes: [2], reason: "isProtected is 2"),
            Refusal(kind: "h264", box: "tenc", offset: 15, bytes: [5], reason: "an initial vector of 5 bytes"),
            Refusal(kind: "h264", box: "tenc", offset: 32, bytes: [5], reason: "a constant initial vector of 5 bytes"),
            Refusal(kind: "h264", box: "frma", offset: 4, bytes: Array("free".utf8), reason: "there is no box frma"),
            Refusal(kind: "h264", box: "stsd", offset: 15, bytes: [2], reason: "an stsd of 2 entries has 1"),
            Refusal(kind: "h264", box: "senc", offset: 8, bytes: [1], reason: "several keys in one sample"),
            Refusal(kind: "h264", box: "senc", offset: 11, bytes: [3], reason: "a senc with parameters of its own"),
            Refusal(kind: "h264", box: "senc", offset: 15, bytes: [1], reason: "a senc of 1 entries, for 5 samples"),
            Refusal(kind: "h264", box: "senc", offset: 20, bytes: [0x7F], reason: "the parts of the sample at"),
            Refusal(kind: "h264", box: "tfhd", offset: 15, bytes: [9], reason: "a track 9, which the moov does not"),
            Refusal(kind: "h264", box: "trun", offset: 15, bytes: [4], reason: "for 4 samples"),
            Refusal(kind: "rotation", box: "sbgp", offset: 27, bytes: [3], reason: "there is no seig group 65539"),
            Refusal(kind: "rotation", box: "sbgp", offset: 23, bytes: [9], reason: "an sbgp with more samples"),
            Refusal(kind: "auxiliary", box: "saiz", offset: 16, bytes: [4], reason: "a saiz of"),
            Refusal(kind: "whole", box: "stsc", offset: 19, bytes: [9], reason: "the chunks of stsc do not ascend"),
        ])
    func refused(_ refusal: Refusal) throws {
        let film = try Film(refusal.kind)
        let bytes = film.bytes.changing(try film.box(refusal.box).lowerBound + refusal.offset, refusal.bytes)
        let reason = malformed(try film.read(bytes))
        #expect(reason?.contains(refusal.reason) == true, "\(reason ?? "")")
    }

    @Test("boxes that are missing, too large or there twice are refused by name")
    func misplaced() throws {
        let film = try Film("unindexed")
        let moov = try film.box("moov")
        let moof = try film.box("moof", 1)
        let before = malformed(try film.read(Array(film.bytes[film.box("moof").lowerBound...])))
        #expect(before == "there is no init segment: the file begins with a fragment, and has no moov")
        let none = malformed(try film.read(Array(film.bytes[..<moov.lowerBound])))
        #expect(none == "there is no moov: the file is cut, or its init segment is another file")
        let twice = film.bytes[..<moof.lowerBound] + film.bytes[moov] + film.bytes[moof.lowerBound...]
        #expect(malformed(try film.read(Array(twice))) == "there is a second moov at \(moof.lowerBound)")
        let overlap = film.bytes[..<moof.upperBound] + film.bytes[moof.upperBound...].dropLast(film.bytes.count / 2)
        #expect(malformed(try film.read(Array(overlap))) != nil)
        // A sparse file: it has a box of 17 MiB.
        let large = 17 << 20
        for box in [moov, moof] {
            try film.place.write(film.bytes.changing(box.lowerBound, [1, 0x10, 0, 0]))
            try Command(["truncate", "-s", "\(box.lowerBound + large)", film.place.directory.appending("file")]).run()
                .succeeded()
            let reason = malformed(
                try film.place.read(#require(try film.open(film.place.source())), 100, at: box.lowerBound))
            #expect(reason?.hasSuffix("has 17825792 bytes, more than 16 MiB") == true, "\(reason ?? "")")
        }
    }

    @Test("a file that is not encrypted, or is not MP4, has no plan")
    func others() throws {
        let film = try Film("h264")
        #expect(
            try film.read(Array(Data(contentsOf: URL(filePath: film.place.directory.appending("clear/film.mp4")))))
                == nil)
        for bytes in [[], [0], Array("WEBVTT\n\n00:00.000".utf8), [0x47] + pattern(999)] as [[UInt8]] {
            #expect(try film.read(bytes) == nil)
        }
    }
}

extension [UInt8] {
    /// Returns a copy with other bytes at an offset.
    fileprivate func changing(_ offset: Int, _ new: [UInt8]) -> [UInt8] {
        var bytes = self
        bytes.replaceSubrange(offset..<(offset + new.count), with: new)
        return bytes
    }
}
