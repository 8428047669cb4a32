import LinuxSystem
import TestSupport

@testable import VaultCrypto
@testable import ViewFormats

/// A key of this size with its bytes, and a vector.
struct TestKey {
    let bytes: [UInt8]
    let key: CbcKey
    let vector = InitialVector(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF)

    init(size: Int = 16, seed: UInt64 = 5) throws {
        bytes = pattern(size, seed: seed)
        key = try CbcKey(bytes.withUnsafeBytes { SecretBytes(copying: $0) })
    }

    /// Encrypts one CBC chain, with PKCS#7 padding by default.
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

    /// Encrypts chunks of `size` bytes, each a chain.
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

func hex(_ bytes: [UInt8]) -> String { Hexadecimal.encode(bytes) }
