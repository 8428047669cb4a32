import Glibc
import LinuxSystem
import TestSupport
import Testing
import VaultCrypto

@testable import ViewFormats

@Suite struct ChainFormatTests {
    static let badPadding = "ends in no valid padding: the key is wrong, or the file is damaged or cut"
    let place: ViewPlace
    let test: TestKey

    init() throws {
        place = try ViewPlace()
        test = try TestKey()
    }

    private func chunks(_ bytes: [UInt8], _ chunkSize: UInt64, _ padding: CipherChain.Padding = .pkcs7) throws
        -> ChainMap
    {
        try ChainFormat.chunks(
            of: place.source(of: bytes), chunkSize: chunkSize, vector: test.vector, padding: padding, key: test.key)
    }

    private func stream(_ bytes: [UInt8], isInFile: Bool = false, _ padding: CipherChain.Padding = .pkcs7) throws
        -> ChainMap
    {
        try ChainFormat.stream(
            of: place.source(of: bytes), vector: isInFile ? nil : test.vector, padding: padding, key: test.key)
    }

    @Test("cbc-chunks: the length follows from the last chunk", arguments: [1, 16, 20, 100, 4096])
    func chunkLengths(chunkSize: Int) throws {
        for count in [1, 15, 16, 17, chunkSize - 1, chunkSize, chunkSize + 1, 3 * chunkSize, 3 * chunkSize + 5] {
            let map = try chunks(test.encrypt(pattern(count), chunkSize: chunkSize), UInt64(chunkSize))
            #expect(map.length == UInt64(count))
        }
        #expect(try chunks([], UInt64(chunkSize)).length == 0)
        // Some writers end a file of whole chunks with an empty chunk.
        let closed = try test.encrypt(pattern(2 * chunkSize), chunkSize: chunkSize) + test.encrypt([])
        #expect(try chunks(closed, UInt64(chunkSize)).length == UInt64(2 * chunkSize))
    }

    @Test("cbc-chunks: 1 TiB in chunks of 4096 bytes is opened by its last block")
    func sparseGiant() throws {
        let full: UInt64 = 1 << 28
        let path = place.directory.appending("giant")
        let writer = Descriptor(owning: open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600))
        try writer.truncate(to: full * 4112)
        try test.encrypt(pattern(11)).withUnsafeBytes { try writer.write($0, at: full * 4112) }
        let source = try place.source("giant")
        let map = try ChainFormat.chunks(
            of: source, chunkSize: 4096, vector: test.vector, padding: .pkcs7, key: test.key)
        #expect(map.length == 1 << 40 + 11)
        let file = place.file(source, map, [test.key])
        #expect(try place.read(file, 100, at: 1 << 40) == pattern(11))
        #expect(try place.read(file, 100, at: 1 << 39).count == 100)
    }

    @Test("cbc-chunks: no padding")
    func unpaddedChunks() throws {
        let bytes = try test.encrypt(pattern(100 * 16), chunkSize: 48, isPadded: false)
        #expect(try chunks(bytes, 48, .none).length == 1600)
        #expect(
            malformed(try chunks(bytes + [1], 48, .none))
                == "the last chunk has 17 bytes of ciphertext, not a multiple of 16: cut, or not AES-CBC")
        for size in [1, 17, 47] as [UInt64] {
            #expect(
                malformed(try chunks(bytes, size, .none))
                    == "chunks of \(size) bytes are not possible with this padding")
        }
    }

    @Test("cbc-chunks: chunk sizes that no file has", arguments: [0, 1 << 62 + 1, .max] as [UInt64])
    func impossibleChunks(size: UInt64) {
        #expect(malformed(try chunks([1], size)) == "chunks of \(size) bytes are not possible with this padding")
    }

    @Test("cbc-chunks: cut, of another chunk size, or under another key")
    func wrongChunks() throws {
        let bytes = try test.encrypt(pattern(250), chunkSize: 100)
        #expect(
            malformed(try chunks(bytes.dropLast(), 100))
                == "the last chunk has 63 bytes of ciphertext, not a multiple of 16: cut, or not AES-CBC")
        #expect(malformed(try chunks(bytes.dropLast(16), 100)) == "the last chunk \(Self.badPadding)")
        // The last chunk is 16 bytes too long: 112 bytes of ciphertext with a padding of 1.
        let long = try test.encrypt(pattern(111))
        #expect(malformed(try chunks(long, 100)) == "the last chunk holds 111 bytes: the chunk size is not 100")
        #expect(try chunks(test.encrypt(pattern(100)), 100).length == 100)
        let other = try TestKey(seed: 6)
        #expect(
            malformed(
                try ChainFormat.chunks(
                    of: place.source(of: bytes), chunkSize: 100, vector: test.vector, padding: .pkcs7, key: other.key)
            ) == "the last chunk \(Self.badPadding)")
    }

    @Test("cbc: lengths, with the vector given and in the file", arguments: [0, 1, 15, 16, 17, 4096, 5000])
    func streamLengths(count: Int) throws {
        let bytes = try test.encrypt(pattern(count))
        #expect(try stream(bytes).length == UInt64(count))
        #expect(try stream(test.vector.bytes + bytes, isInFile: true).length == UInt64(count))
        let whole = try test.encrypt(pattern(count / 16 * 16), isPadded: false)
        #expect(try stream(whole, .none).length == UInt64(whole.count))
        #expect(try stream(test.vector.bytes + whole, isInFile: true, .none).length == UInt64(whole.count))
    }

    @Test("cbc: the error names the fault of a file")
    func wrongStreams() throws {
        let bytes = try test.encrypt(pattern(100))
        #expect(malformed(try stream([])) == "the file has no ciphertext: padding alone takes 16 bytes")
        #expect(
            malformed(try stream(test.vector.bytes, isInFile: true))
                == "the file has no ciphertext: padding alone takes 16 bytes")
        #expect(
            malformed(try stream([1, 2, 3], isInFile: true))
                == "the file has 3 bytes: too short for an initial vector of 16")
        let uneven = "the file has 111 bytes of ciphertext, not a multiple of 16: cut, or not AES-CBC"
        for padding in [CipherChain.Padding.pkcs7, .none] {
            #expect(malformed(try stream(bytes.dropLast(), padding)) == uneven)
            #expect(malformed(try stream(test.vector.bytes + bytes.dropLast(), isInFile: true, padding)) == uneven)
        }
        #expect(malformed(try stream(bytes.dropLast(16))) == "the file \(Self.badPadding)")
    }

    @Test("PKCS#7 is checked as a whole", arguments: 0...17)
    func padding(value: Int) throws {
        func length(_ last: [UInt8]) throws -> UInt64 {
            try stream(test.encrypt(pattern(16) + last, isPadded: false)).length
        }
        let right =
            [UInt8](repeating: 0xAA, count: max(0, 16 - value))
            + [UInt8](repeating: UInt8(value), count: min(16, value))
        guard 1...16 ~= value else {
            let last = [UInt8](repeating: UInt8(value), count: 16)
            #expect(malformed(try length(last)) == "the file \(Self.badPadding)")
            return
        }
        #expect(try length(right) == UInt64(32 - value))
        for position in (16 - value)..<16 {
            var wrong = right
            wrong[position] ^= 0x80
            #expect(malformed(try length(wrong)) == "the file \(Self.badPadding)", "byte \(position)")
        }
    }

    @Test("openssl: a file without the header, or with no data after it")
    func salted() throws {
        let salt = Array("Salted__12345678".utf8)
        let bytes = try test.encrypt(pattern(10))
        #expect(try ChainFormat.salt(of: place.source(of: salt)).bytes == Array("12345678".utf8))
        func length(_ bytes: [UInt8]) throws -> UInt64 {
            try ChainFormat.stream(
                of: place.source(of: bytes), from: 16, vector: .bytes(test.vector), padding: .pkcs7, key: test.key
            ).length
        }
        #expect(try length(salt + bytes) == 10)
        let missing =
            "no Salted__ header: made with -nosalt, or with -S by OpenSSL 3 (--salt gives that salt), or not by openssl enc"
        for wrong in [bytes, Array("salted__12345678".utf8), salt.dropLast()] {
            #expect(malformed(try ChainFormat.salt(of: place.source(of: wrong))) == missing)
        }
        #expect(
            malformed(try ChainFormat.salt(of: place.source(of: []))) == "the file is empty: it has no Salted__ header")
        #expect(
            malformed(try length(salt)) == "the file has no ciphertext: padding alone takes 16 bytes")
    }

    private func ranges(_ ranges: [Range<UInt64>], _ bytes: [UInt8]) throws -> ChainMap {
        let encryption = CipherChain.Encryption(key: 0, vector: .bytes(test.vector), padding: .pkcs7)
        return try ChainFormat.ranges(
            ranges.map { CipherChain(ciphertext: $0, encryption: encryption) }, of: place.source(of: bytes),
            keys: [test.key])
    }

    @Test("byte ranges: each with its own padding, the gaps plain")
    func byteRanges() throws {
        let bytes = [1, 2, 3] + (try test.encrypt(pattern(20))) + (try test.encrypt([])) + [4] + [5]
        let map = try ranges([3..<35, 35..<51], bytes)
        #expect((0..<map.count).map { map[$0].plaintext } == [0..<3, 3..<23, 23..<23, 23..<25])
        #expect(try ranges([], bytes).length == UInt64(bytes.count))
        #expect(malformed(try ranges([3..<35, 34..<50], bytes)) == "the byte range 34-50 overlaps the one before")
        #expect(
            malformed(try ranges([48..<64], bytes)) == "the byte range 48-64 goes beyond the end of the file, at 53")
        #expect(
            malformed(try ranges([3..<34], bytes))
                == "the byte range 3-34 has 31 bytes of ciphertext, not a multiple of 16: cut, or not AES-CBC")
        #expect(malformed(try ranges([3..<19], bytes)) == "the byte range 3-19 \(Self.badPadding)")
        #expect(
            malformed(try ranges([3..<3], bytes))
                == "the byte range 3-3 has no ciphertext: padding alone takes 16 bytes")
    }

    @Test("A forgotten key gives the error of a lock, not of a malformed file")
    func locked() throws {
        let source = try place.source(of: test.encrypt(pattern(20)))
        test.key.forget()
        #expect(throws: ViewError.store(.locked)) {
            try ChainFormat.stream(of: source, vector: test.vector, padding: .pkcs7, key: test.key)
        }
    }
}
