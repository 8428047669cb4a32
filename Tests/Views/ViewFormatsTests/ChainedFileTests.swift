import FileSystem
import Glibc
import LinuxSystem
import TestSupport
import Testing

@testable import VaultCrypto
@testable import ViewFormats

@Suite struct ChainedFileTests {
    let place: ViewPlace
    let test: TestKey

    init() throws {
        place = try ViewPlace()
        test = try TestKey()
    }

    @Test(
        "cbc-chunks of every kind of size",
        arguments: [1, 15, 16, 17, 100, 1000, 4096, 4097, 5000, 65536, 200_000, 1_000_000])
    func chunks(chunkSize: Int) throws {
        let plaintext = pattern(chunkSize < 100 ? 20_000 : 300_001)
        let source = try place.source(of: test.encrypt(plaintext, chunkSize: chunkSize))
        let map = try ChainFormat.chunks(
            of: source, chunkSize: UInt64(chunkSize), vector: test.vector, padding: .pkcs7, key: test.key)
        try place.expect(source, map, [test.key], reads: plaintext)
    }

    @Test("cbc-chunks without padding", arguments: [16, 4096, 4112])
    func unpaddedChunks(chunkSize: Int) throws {
        let plaintext = pattern(100_000 / 16 * 16)
        let source = try place.source(of: test.encrypt(plaintext, chunkSize: chunkSize, isPadded: false))
        let map = try ChainFormat.chunks(
            of: source, chunkSize: UInt64(chunkSize), vector: test.vector, padding: .none, key: test.key)
        try place.expect(source, map, [test.key], reads: plaintext)
    }

    @Test("One chain, with its vector given or in the file", arguments: [16, 24, 32], [1, 16, 4096, 300_005])
    func stream(keySize: Int, count: Int) throws {
        let test = try TestKey(size: keySize)
        let plaintext = pattern(count)
        let bytes = try test.encrypt(plaintext)
        let given = try place.source(of: bytes)
        try place.expect(
            given, try ChainFormat.stream(of: given, vector: test.vector, padding: .pkcs7, key: test.key), [test.key],
            reads: plaintext)
        let inFile = try place.source(of: test.vector.bytes + bytes)
        try place.expect(
            inFile, try ChainFormat.stream(of: inFile, vector: nil, padding: .pkcs7, key: test.key), [test.key],
            reads: plaintext)
    }

    @Test("Ranges under several keys and vectors, with plain bytes between them, and empty ranges")
    func ranges() throws {
        let other = try TestKey(size: 32, seed: 9)
        var bytes: [UInt8] = []
        var plaintext: [UInt8] = []
        var ranges: [CipherChain] = []
        for (number, size) in [0, 1, 15, 16, 20_000, 4095, 0, 100, 70_001, 3].enumerated() {
            let vector = InitialVector(high: 0, low: UInt64(number))
            let key = number % 2 == 0 ? test : other
            let gap = pattern(number % 3 == 0 ? 0 : 7 * number, seed: UInt64(number))
            bytes += gap
            plaintext += gap
            let content = pattern(size, seed: 100 + UInt64(number))
            let start = UInt64(bytes.count)
            bytes += try key.encrypt(content, vector)
            plaintext += content
            ranges.append(
                CipherChain(
                    ciphertext: start..<UInt64(bytes.count),
                    encryption: .init(key: number % 2, vector: .bytes(vector), padding: .pkcs7)))
        }
        bytes += [1, 2, 3]
        plaintext += [1, 2, 3]
        let keys = [test.key, other.key]
        let source = try place.source(of: bytes)
        try place.expect(source, try ChainFormat.ranges(ranges, of: source, keys: keys), keys, reads: plaintext)
    }

    @Test("A vector elsewhere in the file")
    func distantVector() throws {
        let plaintext = pattern(10_000)
        let bytes = try test.encrypt(plaintext) + test.vector.bytes
        let chain = CipherChain(
            ciphertext: 0..<UInt64(bytes.count - 16),
            encryption: .init(key: 0, vector: .inFile(at: UInt64(bytes.count - 16)), padding: .pkcs7))
        let source = try place.source(of: bytes)
        try place.expect(
            source, try ChainFormat.ranges([chain], of: source, keys: [test.key]), [test.key],
            reads: plaintext + test.vector.bytes)
    }

    @Test("Chains in another order than in the source file, one with another's last block as its vector")
    func disordered() throws {
        let plaintext = pattern(9600)
        let source = try place.source(of: test.encrypt(plaintext, isPadded: false))
        let first = CipherChain(
            ciphertext: 0..<4800, encryption: .init(key: 0, vector: .bytes(test.vector), padding: .none))
        let second = CipherChain(
            ciphertext: 4800..<9600, encryption: .init(key: 0, vector: .inFile(at: 4784), padding: .none))
        let map = ChainMap([(second, 4800), (first, 4800)])
        try place.expect(source, map, [test.key], reads: Array(plaintext[4800...] + plaintext[..<4800]))
    }

    @Test("A file that is cut while it is open is malformed at the cut, and readable elsewhere")
    func truncated() throws {
        let plaintext = pattern(100_000)
        let source = try place.source(of: test.encrypt(plaintext))
        let map = try ChainFormat.stream(of: source, vector: test.vector, padding: .pkcs7, key: test.key)
        let file = place.file(source, map, [test.key])
        #expect(truncate(place.directory.appending("file"), 50_000) == 0)
        #expect(try place.read(file, 4096, at: 4096) == Array(plaintext[4096..<8192]))
        let said = "the file ends after 50000 bytes, of the 100000 it had when it was opened"
            .replacing("100000", with: "\(source.size)")
        for offset in [49_000, 48_000] { #expect(malformed(try place.read(file, 4096, at: offset)) == said) }
        #expect(malformed(try place.read(file, 100_000, at: 0)) == said)
        #expect(malformed(try place.read(file, 10, at: 60_000))?.hasPrefix("the file ends after ") == true)
        #expect(try place.read(file, 4096, at: 4096) == Array(plaintext[4096..<8192]))
    }

    @Test("A forgotten key: uncached data is locked; with the key restored, everything is readable again")
    func locked() throws {
        let plaintext = pattern(20_000)
        let source = try place.source(of: test.encrypt(plaintext))
        let map = try ChainFormat.stream(of: source, vector: test.vector, padding: .pkcs7, key: test.key)
        let file = place.file(source, map, [test.key])
        _ = try place.read(file, 10, at: 0)
        test.key.forget()
        #expect(throws: ViewError.store(.locked)) { try place.read(file, 10, at: 5000) }
        place.workspace.wipe()
        #expect(throws: ViewError.store(.locked)) { try place.read(file, 10, at: 5000) }
        #expect(test.key.refill(from: try TestKey().key))
        #expect(try place.read(file, 20_000, at: 0) == plaintext)
    }

    @Test("Wiping leaves no plaintext in a thread's buffers")
    func wipe() throws {
        let source = try place.source(of: test.encrypt(pattern(20_005)))
        let map = try ChainFormat.stream(of: source, vector: test.vector, padding: .pkcs7, key: test.key)
        let workspace = place.workspace
        let file = place.file(source, map, [test.key])
        _ = try file.read(at: 1, into: workspace.reply, workspace: workspace)
        let buffers = [workspace.reply, workspace.ciphertext, workspace.assembly, workspace.block, workspace.vector]
        let isZero = { (buffer: UnsafeMutableRawBufferPointer) in
            Array(buffer) == [UInt8](repeating: 0, count: buffer.count)
        }
        #expect(!buffers.contains(where: isZero))
        #expect(workspace.decryptor.keyIdentity == test.key.identity)
        workspace.wipe()
        #expect(workspace.decryptor.keyIdentity == 0)
        #expect(buffers.allSatisfy(isZero))
        #expect(workspace.reply.count == 1 << 20)
    }

    @Test("Many threads read one file, each with its own workspace")
    func concurrent() async throws {
        let plaintext = pattern(500_000)
        let source = try place.source(of: test.encrypt(plaintext, chunkSize: 10_000))
        let map = try ChainFormat.chunks(
            of: source, chunkSize: 10_000, vector: test.vector, padding: .pkcs7, key: test.key)
        let file = place.file(source, map, [test.key])
        try await withThrowingTaskGroup(of: Bool.self) { group in
            for thread in 0..<4 as Range<UInt64> {
                group.addTask {
                    let workspace = try ViewWorkspace()
                    var generator = SeededGenerator(seed: thread)
                    for _ in 0..<300 {
                        let offset = Int.random(in: 0..<500_000, using: &generator)
                        let count = Int.random(in: 1...9000, using: &generator)
                        let buffer = UnsafeMutableRawBufferPointer(rebasing: workspace.reply[..<count])
                        let had = try file.read(at: UInt64(offset), into: buffer, workspace: workspace)
                        guard buffer[..<had].elementsEqual(plaintext[offset...].prefix(count)) else { return false }
                    }
                    return true
                }
            }
            for try await isRight in group { #expect(isRight) }
        }
    }
}
