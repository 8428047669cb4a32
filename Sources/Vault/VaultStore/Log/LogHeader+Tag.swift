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

    /// Writes the 64 bytes, with a new tag, and their copy.
    func write(to log: Descriptor, keys: ChunkKeys, _ cipher: ChunkCipher) throws(StoreError) {
        let header = Array(bytes[..<Self.tagOffset]) + (try tag(keys: keys, cipher))
        try log.write(header + [UInt8](repeating: 0, count: Self.copyOffset - Self.size) + header, at: 0)
    }
}

extension LogHeader {
    /// The offset of an entry, and the free bytes before it.
    struct Position {
        let offset: UInt64
        let skipped: UInt64
    }

    /// Returns the position of the next entry, which is the beginning if the entry does not fit below the log's size.
    func position(ofSpace space: UInt64, after offset: UInt64) -> Position {
        offset + space > logSize
            ? Position(offset: Self.areaSize, skipped: logSize - offset) : Position(offset: offset, skipped: 0)
    }
}
