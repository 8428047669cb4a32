internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto

extension ChainFormat {
    /// How many bytes of plaintext an encrypted chain has. Reads its last two blocks at most, and checks the padding by
    /// all of PKCS#7 (RFC 5652 section 6.3).
    static func plaintextLength(
        of chain: CipherChain, in source: SourceFile, part: FilePart, key: CbcKey
    ) throws(ViewError) -> UInt64 {
        let size = chain.ciphertext.upperBound - chain.ciphertext.lowerBound
        guard let encryption = chain.encryption else { return size }
        guard size % 16 == 0 else {
            throw .malformed("\(part) has \(size) bytes of ciphertext, not a multiple of 16: cut, or not AES-CBC")
        }
        guard encryption.padding == .pkcs7 else { return size }
        guard size > 0 else { throw .malformed("\(part) has no ciphertext: padding alone takes 16 bytes") }
        let last = try lastBlock(of: chain, encryption.vector, in: source, key: key)
        let padding = last.withUnsafeBytes { paddingSize(of: $0) }
        guard let padding else {
            throw .malformed(
                "\(part) ends in no valid padding: the key is wrong, or the file is damaged or cut")
        }
        return size - UInt64(padding)
    }

    /// 1 to 16, as many bytes of that value as it says; nil for what is no padding.
    private static func paddingSize(of block: UnsafeRawBufferPointer) -> Int? {
        guard let last = block.last, 1...16 ~= last, block.suffix(Int(last)).allSatisfy({ $0 == last }) else {
            return nil
        }
        return Int(last)
    }

    /// The last block of a chain that has one, decrypted.
    private static func lastBlock(
        of chain: CipherChain, _ vector: CipherChain.Vector, in source: SourceFile, key: CbcKey
    ) throws(ViewError) -> SecretBytes {
        let start = chain.ciphertext.upperBound - 16
        var blocks = [UInt8](repeating: 0, count: 32)
        try blocks.withMutableBytes { (blocks) throws(ViewError) in
            let previous = UnsafeMutableRawBufferPointer(rebasing: blocks[..<16])
            if start > chain.ciphertext.lowerBound { return try source.read(at: start - 16, into: blocks) }
            switch vector {
            case .bytes(let bytes): bytes.store(into: previous)
            case .inFile(let offset): try source.read(at: offset, into: previous)
            }
            try source.read(at: start, into: UnsafeMutableRawBufferPointer(rebasing: blocks[16...]))
        }
        do throws(CryptoError) {
            let decryptor = try CbcDecryptor()
            return try SecretBytes(count: 16) { (plaintext) throws(CryptoError) in
                try blocks.withBytes { (blocks) throws(CryptoError) in
                    guard let previous = blocks.baseAddress else { return }
                    try decryptor.decrypt(
                        UnsafeRawBufferPointer(rebasing: blocks[16...]), vector: previous, key: key, into: plaintext)
                }
            }
        } catch {
            throw .store(StoreError(error))
        }
    }
}
