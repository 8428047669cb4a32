import Testing

@testable import VaultCrypto

/// Records compared with an independent implementation's: Python cryptography 48 (AES-CBC and AES-ECB, Poly1305),
/// combined as the file format defines.
@Suite struct ChunkCipherVectorTests {
    static let keys = ChunkKeys(cipherKey: secret(0..<32), macKey: secret(32..<64), macR: secret(64..<80))

    /// Returns the reference's IV for a chunk.
    static func vector(_ chunkIndex: UInt64) -> [UInt8] {
        (0..<16).map { UInt8(truncatingIfNeeded: chunkIndex &* 16 &+ $0 * 3 + 5) }
    }

    /// Encrypts under the reference's IVs.
    static func seal(
        _ plaintext: [UInt8], firstChunkIndex: UInt64, chunkSize: Int, cipher: ChunkCipher
    ) throws -> [UInt8] {
        let count = (plaintext.count + chunkSize - 1) / chunkSize
        var records = [UInt8](repeating: 0, count: plaintext.count + count * 32)
        let shape = try ChunkShape(
            plaintextSize: plaintext.count, recordsSize: records.count, chunkSize: chunkSize)
        for position in 0..<count {
            let start = position * shape.recordSize
            records.replaceSubrange(start..<start + 16, with: vector(firstChunkIndex + UInt64(position)))
        }
        try plaintext.withUnsafeBytes { source in
            try records.withUnsafeMutableBytes { destination in
                try cipher.encryptUnderPlacedVectors(
                    source, shape: shape, firstChunkIndex: firstChunkIndex, keys: keys, into: destination)
            }
        }
        return records
    }

    @Test(
        "whole records: a partial block, only a partial block, whole blocks",
        arguments: [
            (
                21, 7,
                """
                75787b7e8184878a8d909396999c9fa2a3707acb4f89223e052a0b4a63ba1c6abab8b776bdd14517d652458e25d64a68\
                e5c2c9e5fa
                """
            ),
            (5, 0x0102_0304_0506_0708, "85888b8e9194979a9da0a3a6a9acafb25f6c0dc2115183ba69b9cb404110ee069c44ddbfb9"),
            (
                32, 0,
                """
                05080b0e1114171a1d202326292c2f32a7b4a6ec55c8715fef8b401bf897faa3a9adea92da0faa7ee952f3ce58fdc7be\
                57d1a54a27dab0f1f9f58df62a719734
                """
            ),
        ] as [(Int, UInt64, String)])
    func record(size: Int, chunkIndex: UInt64, expected: String) throws {
        let records = try Self.seal(
            pattern(size), firstChunkIndex: chunkIndex, chunkSize: 4096, cipher: ChunkCipher())
        #expect(hex(records) == expected)
    }

    @Test("runs of records, by the SHA-256 of all bytes", arguments: runs)
    func run(chunkSize: Int, length: Int, digest: String) throws {
        let cipher = try ChunkCipher()
        let records = try Self.seal(pattern(length), firstChunkIndex: 3, chunkSize: chunkSize, cipher: cipher)
        #expect(hex(try Sha256.digest(records)) == digest)
        let opened = try open(records, firstChunkIndex: 3, chunkSize: chunkSize, length: length, cipher, Self.keys)
        #expect(opened.plaintext == pattern(length))
    }

    static let runs: [(Int, Int, String)] = [
        (4096, 1, "06bf3ad558227aaa079b937b326ae98efcd610fc24b89ecc423645c58e6ef80e"),
        (4096, 15, "4260ca494d60de5631907a5c3b76528e241d2bbbd0f85aa181839cc24f26d45d"),
        (4096, 16, "732a091c78d28695dd5432eb9f131be2282d3c43a6418b9eaae93e2e62f652bb"),
        (4096, 17, "9046843ec27a8770736cb537f2ace02ab0e4b13f1d3e8cad12c278432ea5e529"),
        (4096, 4095, "63ae03d1e28861d975dbda4e32d3188f8b3ba6fde6384c12fd39968d4a7178a9"),
        (4096, 4096, "38b64b3edd17fa3a40efe98c84f6829fc80afcb3b67ad2b9c12b87b6485bb9f0"),
        (4096, 4097, "cc233eaf9820b497ced23b243cae5881d6ffdea52af6a6b5ca6767e44f1780fe"),
        (4096, 8192, "53e039a49a1ab4485dd5ceea4bade0495ce12b98c16ece4ec26af5f1dfbfb4a8"),
        (4096, 8692, "6c58b2efa634f26993f2ca09a681670d42991bfe99c7f56301c06305709d5372"),
        (4096, 12288, "a34b384785d3d3c7e2ac339666bfb57f1991cdd40d85639c5fd85ada740679c8"),
        (4096, 32768, "d1bfe36c2ea008e5ec0de620eece2b72bbd174681146717ee849b033dfe76c2f"),
        (4096, 32785, "b067c939ed5de2a9511425688840d8c18abc1fb0b9494cabd498f55095376ad5"),
        (4096, 36863, "89f93959fbbdacc1807fea1175a9441d86bb44a8814b636b162acba2f3a2a3ba"),
        (4096, 77840, "83b81ac99849ad036a6a7d4f338a53e563601eda147b17b2943960513097b476"),
        (4096, 81920, "116ae9157be36cf5d3cce5e52ba5354762254b99262ffae3f3e27b2442cc4f47"),
        (4096, 163_841, "ea1e7c65fb30458f20c013741f293759b84b26aabc83d9a36efc15b8116adb2f"),
        (16384, 1, "06bf3ad558227aaa079b937b326ae98efcd610fc24b89ecc423645c58e6ef80e"),
        (16384, 15, "4260ca494d60de5631907a5c3b76528e241d2bbbd0f85aa181839cc24f26d45d"),
        (16384, 16, "732a091c78d28695dd5432eb9f131be2282d3c43a6418b9eaae93e2e62f652bb"),
        (16384, 17, "9046843ec27a8770736cb537f2ace02ab0e4b13f1d3e8cad12c278432ea5e529"),
        (16384, 16383, "e4c70514197b524beeb3bf9309c40bda5317df71977738ff32ba79caba351fcb"),
        (16384, 16384, "aa1c3fe76c6307f015a6f365842c80c5e93128993290ca18298a957cb471187c"),
        (16384, 16385, "406bee8b27aa8c2b2f4fc61099cdd791764e6f19c95a17bcbbcd8be6a1406279"),
        (16384, 32768, "a9325ebb11572f84b385acf9b2aa124da60ddad42289636f5c1c901d0740a946"),
        (16384, 33268, "9a5205a66f30d6b07392268a8ae8e4386134b53ce5b40bff07fe040237fef0bc"),
        (16384, 49152, "4bb1311a1967861084587d3d8eccf078f1f61c127f631a92ac8bad4e144a8d0e"),
        (16384, 131_072, "8dd3ab6aafe6b1f14843855e551cf52c0e1972c8640d32d3ca6e679bd304b06f"),
        (16384, 131_089, "fe3acbe6ac1fcd7aee4305ba35bcdf88d71e1180a69b56a3bcc129fc4c4290a8"),
        (16384, 147_455, "5903a267c7a68ac09e7cea6ef5143ac45722d52e50a20639ac15e7ff87be65ab"),
        (16384, 311_312, "7efda8b79b37cfd142c40617fe4cbf94a1eddcab7a24d19c72107994eaf3a961"),
        (16384, 327_680, "49937fb814fe388d8ba6ca43ab69cca65235ec94b332a30af7bf96977195c362"),
        (16384, 655_361, "5909ae1d5e00b7197d760cd1216c00b43567d8e85fc989b6c738f760353ec02f"),
    ]
}
