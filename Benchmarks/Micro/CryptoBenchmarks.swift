internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// What cryptography costs, as the read and write paths use it.
enum CryptoBenchmarks {
    private static let recordOverhead = 32

    static func run(_ stopwatch: inout Stopwatch) throws {
        for batch in [1, 2, 4, 8, 32] { try chunks(&stopwatch, size: 4096, batch: batch) }
        for size in [512, 16384, 65536] { try chunks(&stopwatch, size: size, batch: max(1, 131072 / size)) }
        try chains(&stopwatch)
        try authenticators(&stopwatch)
        try random(&stopwatch)
        for length in [8, 24, 100] { try names(&stopwatch, length: length) }
    }

    /// - Parameter batch: how many chunks one call is given.
    private static func chunks(_ stopwatch: inout Stopwatch, size: Int, batch: Int) throws {
        let cipher = try ChunkCipher()
        let keys = ChunkKeys(
            cipherKey: try .random(count: 32), macKey: try .random(count: 32), macR: try .random(count: 16))
        let plaintext = buffer(batch * size)
        let records = buffer(batch * (size + recordOverhead))
        defer {
            plaintext.deallocate()
            records.deallocate()
        }
        let name = "chunks of \(size), \(batch) at a time"
        try stopwatch.measure("seal, \(name)", count: batch, bytes: size) {
            try cipher.encrypt(
                UnsafeRawBufferPointer(plaintext), firstChunkIndex: 0, chunkSize: size, keys: keys, into: records)
        }
        // Where `seal` was filtered out there is nothing to open yet.
        try cipher.encrypt(
            UnsafeRawBufferPointer(plaintext), firstChunkIndex: 0, chunkSize: size, keys: keys, into: records)
        try stopwatch.measure("open, \(name)", count: batch, bytes: size) {
            let opened = try cipher.decrypt(
                UnsafeRawBufferPointer(records), firstChunkIndex: 0, chunkSize: size, keys: keys, into: plaintext)
            precondition(opened == batch, "internal error: \(opened) of \(batch) chunks verify")
        }
    }

    /// Parts of one CBC chain, as views decrypt them.
    private static func chains(_ stopwatch: inout Stopwatch) throws {
        for keySize in [16, 32] {
            let decryptor = try CbcDecryptor()
            let key = try CbcKey(.random(count: keySize))
            for size in [4096, 131072] {
                let bytes = buffer(size)
                let vector = buffer(16)
                defer {
                    bytes.deallocate()
                    vector.deallocate()
                }
                guard let start = vector.baseAddress else { continue }
                try stopwatch.measure("CBC decrypt, AES-\(keySize * 8), parts of \(size)", bytes: size) {
                    try decryptor.decrypt(UnsafeRawBufferPointer(bytes), vector: start, key: key, into: bytes)
                }
            }
        }
    }

    private static func authenticators(_ stopwatch: inout Stopwatch) throws {
        let key = try SecretBytes.random(count: 32)
        let message = [UInt8](repeating: 1, count: 4096)
        try stopwatch.measure("HMAC-SHA-256 of 4096", bytes: message.count) {
            _ = try HmacSha256.authenticate(message, key: key)
        }
    }

    private static func random(_ stopwatch: inout Stopwatch) throws {
        for size in [16, 4096] {
            let bytes = buffer(size)
            defer { bytes.deallocate() }
            try stopwatch.measure("random, \(size) bytes", bytes: size) { try SecureRandom.fill(bytes) }
        }
    }

    private static func names(_ stopwatch: inout Stopwatch, length: Int) throws {
        let vault = try VaultID.random()
        let classKey = try KeyDerivation.classKey(master: .random(count: 32), vault: vault, .complete)
        let keys = try DirectoryRecord.make(
            .complete, isRoot: true, classCipher: SivCipher(key: classKey), vault: vault
        ).keys
        let name = [UInt8](repeating: UInt8(ascii: "n"), count: length)
        let encoded = try EntryName.encode(name, keys: keys)
        try stopwatch.measure("name of \(length), encrypt") { _ = try EntryName.encode(name, keys: keys) }
        try stopwatch.measure("name of \(length), decrypt") {
            let decoded = EntryName.decode(encoded.entry.bytes, sidecarBlob: encoded.sidecarBlob, keys: keys)
            precondition(decoded == name, "internal error: a name that does not come back")
        }
    }

    private static func buffer(_ size: Int) -> UnsafeMutableRawBufferPointer {
        let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 4096)
        buffer.initializeMemory(as: UInt8.self, repeating: 1)
        return buffer
    }
}
