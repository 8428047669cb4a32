internal import COpenSSL

/// Encrypts and decrypts chunk records (FileFormat.md, "A chunk record"): AES-256-CBC with residual block
/// termination, and a Poly1305-AES tag. One thread's: it keeps contexts and the key schedules of the file used last,
/// and allocates nothing after `init`.
package final class ChunkCipher {
    static let overhead = 32
    static let ivSize = 16
    static let tagSize = 16
    /// How many chunks are encrypted side by side: CBC encryption is serial, so lanes fill the processor's pipeline.
    static let lanes = 8
    private static let randomSize = 4096

    private let decryption: OpaquePointer
    let encryption: OpaquePointer
    private let tagKeys: OpaquePointer
    private let poly1305: OpaquePointer
    private let algorithms: Algorithms
    private var identity: UInt64 = 0
    /// Poly1305's one-time key: r ‖ AES(macKey; IV).
    private let oneTimeKey: UnsafeMutablePointer<UInt8>
    private let scratch: UnsafeMutablePointer<UInt8>
    /// The lanes' next blocks, side by side.
    let laneBlocks: UnsafeMutableRawPointer
    private let random: UnsafeMutableRawBufferPointer
    private var randomUsed = ChunkCipher.randomSize

    /// AES blocks decrypted so far.
    package private(set) var blocksDecrypted: UInt64 = 0

    package init() throws(CryptoError) {
        algorithms = try Algorithms.get()
        guard let decryption = EVP_CIPHER_CTX_new(), let encryption = EVP_CIPHER_CTX_new(),
            let tagKeys = EVP_CIPHER_CTX_new(), let poly1305 = EVP_MAC_CTX_new(algorithms.poly1305)
        else { throw .library(operation: "EVP_CIPHER_CTX_new") }
        self.decryption = decryption
        self.encryption = encryption
        self.tagKeys = tagKeys
        self.poly1305 = poly1305
        oneTimeKey = .allocate(capacity: 32)
        scratch = .allocate(capacity: 32)
        laneBlocks = .allocate(byteCount: Self.lanes * 16, alignment: 64)
        random = .allocate(byteCount: Self.randomSize, alignment: 16)
    }

    deinit {
        EVP_CIPHER_CTX_free(decryption)
        EVP_CIPHER_CTX_free(encryption)
        EVP_CIPHER_CTX_free(tagKeys)
        EVP_MAC_CTX_free(poly1305)
        OPENSSL_cleanse(oneTimeKey, 32)
        OPENSSL_cleanse(scratch, 32)
        OPENSSL_cleanse(laneBlocks, Self.lanes * 16)
        cleanse(random)
        oneTimeKey.deallocate()
        scratch.deallocate()
        laneBlocks.deallocate()
        random.deallocate()
    }

    /// Wipes the key schedules: they contain the keys.
    package func forgetKeys() {
        EVP_CIPHER_CTX_reset(decryption)
        EVP_CIPHER_CTX_reset(encryption)
        EVP_CIPHER_CTX_reset(tagKeys)
        OPENSSL_cleanse(oneTimeKey, 32)
        identity = 0
    }

    func use(_ keys: ChunkKeys) throws(CryptoError) {
        if identity == keys.identity { return }
        identity = 0
        try keys.cipherKey.withUnsafeBytes { (key) throws(CryptoError) in
            let key = key.baseAddress?.assumingMemoryBound(to: UInt8.self)
            try check(EVP_DecryptInit_ex2(decryption, algorithms.cbc, key, nil, nil), "EVP_DecryptInit_ex2")
            try check(EVP_EncryptInit_ex2(encryption, algorithms.ecb, key, nil, nil), "EVP_EncryptInit_ex2")
        }
        try keys.macKey.withUnsafeBytes { (key) throws(CryptoError) in
            let key = key.baseAddress?.assumingMemoryBound(to: UInt8.self)
            try check(EVP_EncryptInit_ex2(tagKeys, algorithms.ecb, key, nil, nil), "EVP_EncryptInit_ex2")
        }
        EVP_CIPHER_CTX_set_padding(decryption, 0)
        EVP_CIPHER_CTX_set_padding(encryption, 0)
        EVP_CIPHER_CTX_set_padding(tagKeys, 0)
        keys.macR.withUnsafeBytes { UnsafeMutableRawPointer(oneTimeKey).copyMemory(from: $0.baseAddress ?? .init(oneTimeKey), byteCount: 16) }
        identity = keys.identity
    }

    /// Verifies and decrypts contiguous records; returns how many leading ones verified. Nothing of a record that does
    /// not verify, or of one behind it, is written to `plaintext`.
    /// - Parameters:
    ///   - records: IV ‖ ciphertext ‖ tag each, all but the last of `chunkSize` + 32 bytes.
    ///   - plaintext: `records.count` less 32 bytes a record.
    package func open(
        _ records: UnsafeRawBufferPointer, firstChunkIndex: UInt64, chunkSize: Int, keys: ChunkKeys,
        into plaintext: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) -> Int {
        try use(keys)
        guard let input = records.baseAddress?.assumingMemoryBound(to: UInt8.self),
            let output = plaintext.baseAddress?.assumingMemoryBound(to: UInt8.self)
        else { return 0 }
        var opened = 0
        var start = 0
        var done = 0
        while start < records.count {
            let size = min(chunkSize + Self.overhead, records.count - start)
            let n = size - Self.overhead
            guard n > 0, done + n <= plaintext.count else { throw .invalidInput("a record of \(size) bytes") }
            let record = input + start
            try computeTag(record, n, index: firstChunkIndex + UInt64(opened), into: scratch)
            guard CRYPTO_memcmp(scratch, record + Self.ivSize + n, Self.tagSize) == 0 else { return opened }
            try decrypt(record, n, into: output + done)
            opened += 1
            start += size
            done += n
        }
        return opened
    }

    /// Poly1305 under r ‖ AES(macKey; IV), over ciphertext ‖ LE64(index).
    func computeTag(
        _ record: UnsafePointer<UInt8>, _ n: Int, index: UInt64, into tag: UnsafeMutablePointer<UInt8>
    ) throws(CryptoError) {
        var size: Int32 = 0
        try check(EVP_EncryptUpdate(tagKeys, oneTimeKey + 16, &size, record, 16), "EVP_EncryptUpdate")
        try check(EVP_MAC_init(poly1305, oneTimeKey, 32, nil), "EVP_MAC_init")
        try check(EVP_MAC_update(poly1305, record + Self.ivSize, n), "EVP_MAC_update")
        var index = index.littleEndian
        let status = withUnsafeBytes(of: &index) {
            EVP_MAC_update(poly1305, $0.baseAddress?.assumingMemoryBound(to: UInt8.self), 8)
        }
        try check(status, "EVP_MAC_update")
        var tagSize = 0
        try check(EVP_MAC_final(poly1305, tag, &tagSize, Self.tagSize), "EVP_MAC_final")
    }

    private func decrypt(
        _ record: UnsafePointer<UInt8>, _ n: Int, into output: UnsafeMutablePointer<UInt8>
    ) throws(CryptoError) {
        let full = n & ~15
        let ciphertext = record + Self.ivSize
        var size: Int32 = 0
        if full > 0 {
            try check(EVP_DecryptInit_ex2(decryption, nil, nil, record, nil), "EVP_DecryptInit_ex2")
            try check(EVP_DecryptUpdate(decryption, output, &size, ciphertext, Int32(full)), "EVP_DecryptUpdate")
        }
        if n > full { try maskResidue(ciphertext, full, n - full, iv: record, into: output + full) }
        blocksDecrypted += UInt64((n + 15) / 16)
    }

    /// Residual block termination: the last bytes XOR AES(cipherKey; the ciphertext block before them, or the IV).
    func maskResidue(
        _ ciphertext: UnsafePointer<UInt8>, _ full: Int, _ residue: Int, iv: UnsafePointer<UInt8>,
        from source: UnsafePointer<UInt8>? = nil, into output: UnsafeMutablePointer<UInt8>
    ) throws(CryptoError) {
        var size: Int32 = 0
        let before = full > 0 ? ciphertext + full - 16 : iv
        let mask = scratch + 16
        try check(EVP_EncryptUpdate(encryption, mask, &size, before, 16), "EVP_EncryptUpdate")
        let input = source ?? ciphertext + full
        for byte in 0..<residue { output[byte] = input[byte] ^ mask[byte] }
        OPENSSL_cleanse(mask, 16)
    }

    /// A fresh IV, from random bytes drawn many at a time: each is used once and wiped.
    func drawIV(into iv: UnsafeMutablePointer<UInt8>) throws(CryptoError) {
        if randomUsed + Self.ivSize > random.count {
            try SecureRandom.fill(random)
            randomUsed = 0
        }
        guard let base = random.baseAddress else { return }
        UnsafeMutableRawPointer(iv).copyMemory(from: base + randomUsed, byteCount: Self.ivSize)
        (base + randomUsed).initializeMemory(as: UInt8.self, repeating: 0, count: Self.ivSize)
        randomUsed += Self.ivSize
    }
}
