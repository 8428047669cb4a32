import Foundation
import Testing

@testable import VaultCrypto
@testable import ViewFormats

/// A key of this size, its bytes, and a vector.
struct TestKey {
    let bytes: [UInt8]
    let key: CbcKey
    let vector = InitialVector(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF)

    init(size: Int = 16, seed: UInt64 = 5) throws {
        bytes = pattern(size, seed: seed)
        key = try CbcKey(bytes.withUnsafeBytes { SecretBytes(copying: $0) })
    }

    /// One CBC chain, with PKCS#7 padding by default.
    func encrypt(_ plaintext: some Sequence<UInt8>, _ vector: InitialVector? = nil, isPadded: Bool = true) throws
        -> [UInt8]
    {
        var input = Array(plaintext)
        if isPadded {
            let padding = 16 - input.count % 16
            input += [UInt8](repeating: UInt8(padding), count: padding)
        }
        var output = [UInt8](repeating: 0, count: input.count)
        let context = try CipherContext(Library.loaded().aesCBC(keySize: bytes.count), encrypts: true)
        try context.setKey(key.bytes)
        try context.setVector((vector ?? self.vector).bytes)
        try context.transform(input, into: &output, size: input.count)
        return output
    }

    /// Chunks of `size` bytes, each of them a chain.
    func encrypt(_ plaintext: [UInt8], chunkSize size: Int, isPadded: Bool = true) throws -> [UInt8] {
        try stride(from: 0, to: plaintext.count, by: size).flatMap {
            try encrypt(plaintext[$0...].prefix(size), isPadded: isPadded)
        }
    }
}

extension InitialVector {
    var bytes: [UInt8] {
        var bytes = [UInt8](repeating: 0, count: 16)
        bytes.withUnsafeMutableBytes { store(into: $0) }
        return bytes
    }
}

func hex(_ bytes: [UInt8]) -> String {
    let digits = Array("0123456789abcdef")
    return String(bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
}

/// Bytes that identify their position.
func pattern(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    var generator = SeededGenerator(seed: seed)
    var bytes = [UInt8](repeating: 0, count: count)
    bytes.withUnsafeMutableBytes { bytes in
        var start = 0
        while start < count {
            withUnsafeBytes(of: generator.next()) { word in
                let size = min(8, count - start)
                UnsafeMutableRawBufferPointer(rebasing: bytes[start..<(start + size)])
                    .copyMemory(from: UnsafeRawBufferPointer(rebasing: word[..<size]))
            }
            start += 8
        }
    }
    return bytes
}

/// Compares two byte strings, fast enough for long ones in a debug build (memcmp(3)).
func same(_ a: some ContiguousBytes, _ b: some ContiguousBytes) -> Bool {
    a.withUnsafeBytes { a in
        b.withUnsafeBytes { b in
            guard a.count == b.count, let first = a.baseAddress, let second = b.baseAddress else {
                return a.count == b.count
            }
            return memcmp(first, second, a.count) == 0
        }
    }
}

/// A small generator with a seed, so that a failing case can be repeated.
struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        // splitmix64 (Steele, Lea, Flood 2014)
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }
}
