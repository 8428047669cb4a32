internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// The tag of the log's header (FileFormat, Log).
extension LogHeader {
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
}
