import FileSystem
import LinuxSystem
import TestSupport
import Testing
import VaultFormat

@testable import VaultStore

/// Chunks decrypted into the block cache before a program reads them.
@Suite struct ReadAheadTests {
    private static let c = 4096
    /// The file's size: more than one batch of chunks, and a part of one.
    private static let size = 100 * c + 10
    private let vault: TestStore
    private let store: Store
    private let file: EncryptedFile
    private let workspace: Workspace

    init() throws {
        vault = try TestStore()
        try vault.make(pattern(Self.size))
        // The file must fit in each shard: with 1 MiB, one token in 500 puts more chunks into a shard than it holds.
        store = try vault.open(cacheSize: 4 << 20)
        file = try vault.reopen(in: store)
        workspace = try Workspace(layout: store.layout)
    }

    /// Decrypts from an offset on, and returns the ends of the pieces.
    private func readAhead(from start: Int = 0, _ file: EncryptedFile? = nil) throws -> [UInt64] {
        var ends: [UInt64] = []
        while let end = try (file ?? self.file).readAhead(at: ends.last ?? UInt64(start), workspace: workspace),
            end < .max
        {
            ends.append(end)
        }
        return ends
    }

    private func read(_ range: Range<Int>) throws -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: range.count)
        let count = try bytes.withUnsafeMutableBytes { buffer in
            try file.read(at: UInt64(range.lowerBound), into: buffer, isAhead: true, workspace: workspace)
        }
        return Array(bytes[..<count])
    }

    @Test("reads that follow decrypt nothing, in any sizes", arguments: [1000, 4096, 70_000, 131_072])
    func used(size: Int) throws {
        #expect(try readAhead() == [32, 64, 96].map { UInt64($0 * Self.c) } + [UInt64(Self.size)])
        let before = store.counters.aesBlocksDecrypted.total
        var start = 0
        while start < Self.size {
            let end = min(start + size, Self.size)
            #expect(try read(start..<end) == Array(pattern(Self.size)[start..<end]))
            start = end
        }
        #expect(store.counters.aesBlocksDecrypted.total == before)
    }

    @Test("a part that is cached is not decrypted again")
    func cached() throws {
        _ = try readAhead()
        let before = store.counters.aesBlocksDecrypted.total
        #expect(try readAhead().last == UInt64(Self.size))
        #expect(store.counters.aesBlocksDecrypted.total == before)
    }

    @Test("a write and a truncation after it are seen")
    func changed() throws {
        _ = try readAhead()
        try file.put(pattern(5000, seed: 7), at: 3 * Self.c + 100)
        var expected = pattern(Self.size)
        expected.replaceSubrange((3 * Self.c + 100)..<(3 * Self.c + 5100), with: pattern(5000, seed: 7))
        #expect(try read(0..<Self.size) == expected)
        _ = try readAhead()
        try file.truncate(to: 50 * Self.c + 1)
        try file.truncate(to: Self.size)
        expected.replaceSubrange((50 * Self.c + 1)..., with: [UInt8](repeating: 0, count: 50 * Self.c + 9))
        #expect(try read(0..<Self.size) == expected)
    }

    @Test("chunks that were read are replaced first, so that they push nothing else out of the cache")
    func pushesNothingOut() throws {
        let small = try vault.open(cacheSize: 64 * Self.c)
        let file = try vault.reopen(in: small)
        var bytes = [UInt8](repeating: 0, count: Self.c)
        for chunk in [90, 95] {
            _ = try bytes.withUnsafeMutableBytes { buffer in
                try file.read(at: UInt64(chunk * Self.c), into: buffer, workspace: workspace)
            }
        }
        for start in stride(from: 0, to: 88, by: 4) {
            for chunk in start..<(start + 4) {
                let seen = file.parts.changes.value
                let plaintext = pattern(Self.c, seed: UInt64(chunk))
                plaintext.withUnsafeBytes {
                    small.cache.insert(
                        file: file.token, chunk: UInt64(chunk), $0, seen: seen, changes: file.parts.changes)
                }
            }
            var part = [UInt8](repeating: 0, count: 4 * Self.c)
            _ = try part.withUnsafeMutableBytes { buffer in
                try file.read(at: UInt64(start * Self.c), into: buffer, isAhead: true, workspace: workspace)
            }
            #expect(part == (start..<(start + 4)).flatMap { pattern(Self.c, seed: UInt64($0)) })
        }
        for chunk in [90, 95] as [UInt64] { #expect(small.cache.contains(file: file.token, chunk: chunk)) }
    }

    @Test("nothing is decrypted without keys, or after the end")
    func refused() throws {
        #expect(try file.readAhead(at: UInt64(Self.size), workspace: workspace) == .max)
        file.forgetKeys()
        #expect(try file.readAhead(at: 0, workspace: workspace) == nil)
        #expect(store.cache.usedSize == 0)
    }

    @Test("damage is left to the read that meets it")
    func damage() throws {
        try vault.change { $0[Int(store.layout.recordOffset(ofChunk: 40)) + 20] ^= 1 }
        #expect(throws: StoreError.self) { _ = try readAhead() }
        #expect(try read(0..<(32 * Self.c)) == Array(pattern(Self.size)[..<(32 * Self.c)]))
        #expect(throws: StoreError.self) { _ = try read((32 * Self.c)..<(64 * Self.c)) }
    }
}
