internal import FileSystem
internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// The records of a file's chunks: runs of them are read, in place or from the log, decrypted and encrypted. The file
/// decides about a record that does not verify. Any thread, but each needs a workspace of its own.
extension FileParts {
    /// Reads the records of adjacent chunks. Returns the number of bytes in place. Fills the rest so that these records
    /// neither verify nor look like holes.
    @discardableResult
    func readRecords(_ first: UInt64, into records: UnsafeMutableRawBufferPointer) throws(StoreError) -> Int {
        try counters.storeTime.time { () throws(StoreError) in
            try log.readBeside(first, records, layout) { () throws(StoreError) in
                let stored = try reader.read(at: layout.recordOffset(ofChunk: first), into: records)
                counters.ciphertextBytesRead.count(stored)
                if stored < records.count { records.slice(stored...).fill(with: 0xFF) }
                return stored
            }
        }
    }

    /// Reads the record of a chunk with `size` bytes of plaintext.
    func readRecord(_ chunk: UInt64, size: Int, _ workspace: Workspace) throws(StoreError) -> UnsafeRawBufferPointer {
        let record = workspace.records.slice(..<(size + ChunkLayout.recordOverhead))
        try readRecords(chunk, into: record)
        return UnsafeRawBufferPointer(record)
    }

    /// Decrypts adjacent records. Returns the number of chunks before the first that does not verify.
    @inline(__always)
    func decrypt(
        _ records: UnsafeRawBufferPointer, first: UInt64, into plaintext: UnsafeMutableRawBufferPointer,
        _ cipher: ChunkCipher
    ) throws(StoreError) -> Int {
        do throws(CryptoError) {
            return try cipher.decrypt(
                records, firstChunkIndex: first, chunkSize: layout.chunkSize, keys: keys.chunk, into: plaintext)
        } catch { throw StoreError(error) }
    }

    /// Encrypts a batch into the workspace. Returns its records, with which the workspace begins.
    @discardableResult
    func encrypt(
        _ plaintext: UnsafeRawBufferPointer, first: UInt64, chunks: Int, _ workspace: Workspace
    ) throws(StoreError) -> UnsafeRawBufferPointer {
        let records = workspace.records.slice(..<(plaintext.count + chunks * ChunkLayout.recordOverhead))
        do throws(CryptoError) {
            try counters.cryptoTime.time { () throws(CryptoError) in
                try workspace.cipher.encrypt(
                    plaintext, firstChunkIndex: first, chunkSize: layout.chunkSize, keys: keys.chunk, into: records)
            }
        } catch { throw StoreError(error) }
        return UnsafeRawBufferPointer(records)
    }
}
