import FileSystem
import Foundation
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultCrypto

@testable import ViewFormats

/// Ciphertext files in a separate directory, and a mount's objects to read them.
final class ViewPlace {
    let directory: TemporaryDirectory
    let cache: BlockCache
    let counters = Counters()
    let workspace: ViewWorkspace
    private var lastToken: UInt64 = 0

    init(cacheSize: Int = 1 << 20) throws {
        directory = try TemporaryDirectory()
        cache = try BlockCache(capacity: cacheSize, blockSize: ViewWorkspace.pageSize)
        workspace = try ViewWorkspace()
    }

    func write(_ bytes: [UInt8], to name: String = "file") throws {
        try Data(bytes).write(to: URL(filePath: directory.appending(name)))
    }

    func source(_ name: String = "file") throws -> SourceFile {
        let path = directory.appending(name)
        return try SourceFile(Descriptor(owning: open(path, O_RDONLY | O_CLOEXEC)))
    }

    /// Writes the source file with these bytes.
    func source(of bytes: [UInt8]) throws -> SourceFile {
        try write(bytes)
        return try source()
    }

    /// Opens the file separately, with an empty cache.
    func file(_ source: SourceFile, _ map: ChainMap, _ keys: [CbcKey]) -> ChainedFile {
        lastToken += 1
        return ChainedFile(
            source: source, .chains(map), keys: keys, token: lastToken, cache: cache, counters: counters)
    }

    /// Reads up to `count` bytes. The buffer's other bytes, and those after it, must stay unchanged.
    func read(_ file: ChainedFile, _ count: Int, at offset: Int) throws -> [UInt8] {
        let fresh = [UInt8](repeating: 0xEE, count: count + 1)
        var bytes = fresh
        let had = try bytes.withUnsafeMutableBytes { buffer in
            try file.read(
                at: UInt64(offset), into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<count]),
                workspace: workspace)
        }
        #expect(same(bytes[had...], fresh[had...]), "\(had) bytes read at \(offset)")
        return Array(bytes[..<had])
    }

    /// Reads bytes, expects those of `plaintext`, and returns the increase of the counters.
    func count(
        _ file: ChainedFile, _ count: Int, at offset: Int, of plaintext: [UInt8],
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> Counted {
        let before = Counted(counters)
        let found = try read(file, count, at: offset)
        let after = Counted(counters)
        #expect(
            same(found, plaintext.dropFirst(offset).prefix(count)), "\(count) bytes at \(offset)",
            sourceLocation: sourceLocation)
        return Counted(
            blocks: after.blocks - before.blocks, bytes: after.bytes - before.bytes, hits: after.hits - before.hits,
            misses: after.misses - before.misses)
    }

    /// Reads on a grid of offsets and sizes and at random, with a warm cache and a cold one.
    func expect(
        _ source: SourceFile, _ map: ChainMap, _ keys: [CbcKey], reads plaintext: [UInt8], _ comment: Comment? = nil,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws {
        #expect(map.length == UInt64(plaintext.count), comment, sourceLocation: sourceLocation)
        let warm = file(source, map, keys)
        // A helper shares large reads.
        try withRequestHelper(cores: IdleCores(of: .max)) { () throws(StoreError) in
            do throws(ViewError) { return try ViewWorkspace() } catch { throw .system(.noMemory) }
        } _: { helper in
            workspace.helper = helper
            defer { workspace.helper = nil }
            let found = try read(file(source, map, keys), plaintext.count, at: 0)
            #expect(same(found, plaintext[...]), comment, sourceLocation: sourceLocation)
        }
        let edges = [0, 1, 15, 16, 17, 4080, 4095, 4096, 4097, 8192, 65536, 70000]
        var reads = edges.flatMap { edge in
            [edge, plaintext.count - edge].flatMap { offset in [1, 16, 100, 4096, 5000, 70000].map { (offset, $0) } }
        }
        reads.append((0, plaintext.count + 10))
        var generator = SeededGenerator(seed: UInt64(plaintext.count))
        for _ in 0..<60 {
            reads.append(
                (Int.random(in: 0...plaintext.count, using: &generator), Int.random(in: 1...9000, using: &generator)))
        }
        for (offset, count) in reads where offset >= 0 {
            let expected = plaintext.dropFirst(offset).prefix(count)
            for file in [warm, file(source, map, keys)] {
                let found = try read(file, count, at: offset)
                if !same(found, expected) {
                    Issue.record("\(count) bytes at \(offset) differ", sourceLocation: sourceLocation)
                    return
                }
            }
        }
    }
}

struct Counted: Equatable {
    var blocks: UInt64
    var bytes: UInt64
    var hits: UInt64
    var misses: UInt64
}

extension Counted {
    init(_ counters: Counters) {
        self.init(
            blocks: counters.aesBlocksDecrypted.total, bytes: counters.ciphertextBytesRead.total,
            hits: counters.cacheHits.total, misses: counters.cacheMisses.total)
    }
}

/// Returns the fault of a malformed file reported by `body`. Nil, and a failed expectation, without a report.
func malformed(
    _ body: @autoclosure () throws -> some Any, sourceLocation: SourceLocation = #_sourceLocation
) -> String? {
    do {
        _ = try body()
    } catch ViewError.malformed(let reason) {
        return reason
    } catch {
        Issue.record("not malformed: \(error)", sourceLocation: sourceLocation)
        return nil
    }
    Issue.record("no error", sourceLocation: sourceLocation)
    return nil
}
