internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// The tag of the log's header (FileFormat, Log).
extension LogHeader {
    /// Computes the tag.
    func tag(keys: ChunkKeys, _ cipher: ChunkCipher) throws(StoreError) -> [UInt8] {
        var (bytes, tag) = (Array(bytes[..<Self.tagOffset]), self.tag)
        try bytes.withMutableBytes { (bytes) throws(StoreError) in
            try tag.withMutableBytes { (tag) throws(StoreError) in
                try StoreError.ofCrypto { () throws(CryptoError) in
                    try cipher.authenticate(UnsafeRawBufferPointer(bytes), nonce: (nonce, salt), keys: keys, into: tag)
                }
            }
        }
        return tag
    }

    /// Writes the 64 bytes, with a new tag.
    func write(to log: Descriptor, keys: ChunkKeys, _ cipher: ChunkCipher) throws(StoreError) {
        try log.write(Array(bytes[..<Self.tagOffset]) + tag(keys: keys, cipher), at: 0)
    }
}
