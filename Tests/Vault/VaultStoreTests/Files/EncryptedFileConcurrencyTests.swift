import FileSystem
import Glibc
import Synchronization
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Readers without a lock while writers are running (see the comment on `EncryptedFile`; FileFormat: Journal).
@Suite struct EncryptedFileConcurrencyTests {
    private static let c = 4096

    /// Returns a chunk with its index and version repeated in all of its bytes.
    private static func chunk(_ index: Int, version: UInt64) -> [UInt8] {
        repeating(UInt64(index) << 40 | version, count: c)
    }

    /// Returns a chunk's version, or nil if the chunk is mixed.
    private static func version(of chunk: ArraySlice<UInt8>, index: Int) -> UInt64? {
        let word = Array(chunk.prefix(8)).withUnsafeBytes { $0.loadUnaligned(as: UInt64.self) }
        let isWhole = word >> 40 == UInt64(index) && Array(chunk) == Self.chunk(index, version: word & ((1 << 40) - 1))
        return isWhole ? word & ((1 << 40) - 1) : nil
    }

    @Test(
        "Chunks-1, Store-9: a reader beside a writer reads each chunk wholly old or new, and the cache is new in the end",
        .timeLimit(.minutes(60)), arguments: [1, 5, 24])
    func readersBesideWriter(chunksAtOnce: Int) throws {
        let fixture = try TestStore()
        let store = try fixture.open(cacheSize: 4 << 20)
        let file = try fixture.create(in: store)
        let count = 48
        try file.put((0..<count).flatMap { Self.chunk($0, version: 0) }, at: 0)
        let isOver = Atomic<Bool>(false)
        let rounds: UInt64 = 60
        let finished = Atomic<UInt64>(0)
        let reader: @Sendable () throws -> Void = {
            let workspace = try Workspace(layout: store.layout)
            var generator = SeededGenerator(seed: UInt64(chunksAtOnce))
            while !isOver.load(ordering: .acquiring) {
                let first = Int.random(in: 0..<count, using: &generator)
                let run = min(count - first, Int.random(in: 1...20, using: &generator))
                // The reader must see at least the last version written before its read.
                let least = finished.load(ordering: .acquiring)
                let bytes = try file.get(run * Self.c, at: first * Self.c, workspace)
                for index in first..<(first + run) {
                    let part = bytes[((index - first) * Self.c)..<((index - first + 1) * Self.c)]
                    let version = try #require(Self.version(of: part, index: index), "chunk \(index) is of no version")
                    if version < least { Issue.record("chunk \(index): \(version) after \(least)") }
                }
            }
        }
        let writer: @Sendable () throws -> Void = {
            defer { isOver.store(true, ordering: .releasing) }
            let workspace = try Workspace(layout: store.layout)
            for version in 1...rounds {
                for first in stride(from: 0, to: count, by: chunksAtOnce) {
                    let run = min(chunksAtOnce, count - first)
                    let data = (first..<(first + run)).flatMap { Self.chunk($0, version: version) }
                    // Off the chunk grid, written data goes to the cache: here with the unchanged end of the previous
                    // chunk.
                    let before = version % 2 == 0 || first == 0 ? [] : Self.chunk(first - 1, version: version).suffix(8)
                    try file.put(before + data, at: first * Self.c - before.count, workspace)
                }
                finished.store(version, ordering: .releasing)
            }
        }
        try concurrently([reader, reader, reader, writer])
        let last = (0..<count).flatMap { Self.chunk($0, version: rounds) }
        #expect(try file.contents() == last, "what the cache holds")
        for index in 0..<count {
            #expect(try file.get(Self.c, at: index * Self.c) == Self.chunk(index, version: rounds), "chunk \(index)")
        }
        #expect(store.counters.damagedReads.total == 0)
        #expect(try fixture.reopen(in: try fixture.open()).contents() == last)
    }

    @Test("A reader beside truncations reads existing data, and gets no damage error", .timeLimit(.minutes(60)))
    func readersBesideTruncation() throws {
        let fixture = try TestStore()
        let store = try fixture.open(cacheSize: 1 << 20)
        let file = try fixture.create(in: store)
        let content = pattern(20 * Self.c + 99)
        try file.put(content, at: 0)
        let isOver = Atomic<Bool>(false)
        let reads = Atomic<Int>(0)
        let readersLeft = Atomic<Int>(2)
        let reader: @Sendable () throws -> Void = {
            defer { readersLeft.subtract(1, ordering: .acquiringAndReleasing) }
            let workspace = try Workspace(layout: store.layout)
            while !isOver.load(ordering: .acquiring) {
                defer { reads.add(1, ordering: .acquiringAndReleasing) }
                let bytes = try file.get(content.count, at: 0, workspace)
                // Every read must return the file's own bytes, and at least the smallest length so far.
                #expect(bytes.count >= 2 * Self.c)
                #expect(bytes == Array(content[..<bytes.count]))
                let end = try file.get(Self.c, at: 10 * Self.c, workspace)
                #expect(end == Array(content[(10 * Self.c)..<(10 * Self.c + end.count)]))
            }
        }
        let writer: @Sendable () throws -> Void = {
            defer { isOver.store(true, ordering: .releasing) }
            let workspace = try Workspace(layout: store.layout)
            var generator = SeededGenerator(seed: 3)
            for _ in 0..<400 {
                let length = Int.random(in: (2 * Self.c)..<content.count, using: &generator)
                try file.truncate(to: length, workspace)
                let before = reads.load(ordering: .acquiring)
                while reads.load(ordering: .acquiring) == before && readersLeft.load(ordering: .acquiring) > 0 {
                    sched_yield()
                }
                try file.put(Array(content[length...]), at: length, workspace)
            }
        }
        try concurrently([reader, reader, writer])
        #expect(try file.contents() == content)
        #expect(store.counters.damagedReads.total == 0)
    }

    @Test("Log-6: many writers share a small log without a deadlock", .timeLimit(.minutes(60)))
    func writersShareTheLog() throws {
        let fixture = try TestStore()
        try fixture.write(LogHeader(logSize: 8 << 20).bytes, to: "vaultfs.log")
        let store = try fixture.open()
        let files = try (0..<6).map { try fixture.create("file\($0)", in: store) }
        try concurrently(
            files.enumerated().map { number, file in
                {
                    let workspace = try Workspace(layout: store.layout)
                    for round in 0..<20 as Range<UInt64> {
                        try file.put(pattern(64 * Self.c, seed: UInt64(number) << 8 | round), at: 0, workspace)
                    }
                }
            })
        for (number, file) in files.enumerated() {
            #expect(try file.contents() == pattern(64 * Self.c, seed: UInt64(number) << 8 | 19))
        }
    }

    @Test(
        "Store-2: a file is sealed while it is written, and in the end the seal covers all of it",
        .timeLimit(.minutes(60)))
    func sealingBesideWriting() throws {
        let fixture = try TestStore()
        let store = try fixture.open()
        let file = try fixture.create(in: store)
        let isOver = Atomic<Bool>(false)
        try concurrently([
            {
                defer { isOver.store(true, ordering: .releasing) }
                let workspace = try Workspace(layout: store.layout)
                for _ in 0..<300 {
                    try file.put(pattern(5000), at: Int(file.length), workspace)
                    try file.truncate(to: Int(file.length) - 2500, workspace)
                }
            },
            {
                while !isOver.load(ordering: .acquiring) {
                    store.durability.sealer.add(file)
                    store.durability.sealer.sealWaiting()
                }
            },
        ])
        store.durability.sealer.add(file)
        store.durability.sealer.sealAll()
        #expect(try fixture.header().isSealed)
        #expect(try fixture.header().length == 300 * 2500)
    }
}
