internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
internal import VaultFormat

/// The records of one file's chunks: reads runs of them, in place or from the log, decrypts and encrypts. It has no
/// policy: the file decides about a record that does not verify. Any thread, but each needs a workspace of its own.
package struct ChunkRecords: ~Copyable, Sendable {
    /// The file's name in the block cache.
    let token: UInt64
    /// Changes once at most, before the log has an entry of the file (`replaceSharedID`).
    let fileID: Atomic<UInt64>
    let keys: FileKeys
    let reader: Descriptor
    let layout: ChunkLayout
    let counters: Counters
    package let log = FileLog()
    let changes = ChangeCounter()
    /// Counts the cuts of the file. After a cut the log forgets the removed records, but older ones are still in place.
    let cuts = ChangeCounter()
    /// The header's sparse flag: an all-zero record reads as zeros.
    let isSparse: Atomic<Bool>
    /// The header's class, whose key wraps the file secret.
    let protectionClass: Atomic<ProtectionClass>

    init(_ header: FileHeader, _ keys: FileKeys, _ reader: Descriptor, in store: Store) {
        token = store.makeToken()
        fileID = Atomic(header.fileID)
        self.keys = keys
        self.reader = reader
        layout = store.layout
        counters = store.counters
        isSparse = Atomic(header.isSparse)
        protectionClass = Atomic(header.protectionClass)
    }

    /// Adopts the current header. Called by the file's writer.
    func setHeader(_ header: FileHeader) {
        fileID.store(header.fileID, ordering: .releasing)
        isSparse.store(header.isSparse, ordering: .releasing)
        protectionClass.store(header.protectionClass, ordering: .releasing)
    }

    /// Reads the records of adjacent chunks. Returns the number of bytes in place. Fills the rest so that these records
    /// neither verify nor look like holes.
    @discardableResult
    func read(_ first: UInt64, into records: UnsafeMutableRawBufferPointer) throws(StoreError) -> Int {
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
    func read(_ chunk: UInt64, size: Int, _ workspace: Workspace) throws(StoreError) -> UnsafeRawBufferPointer {
        let record = workspace.records.slice(..<(size + ChunkLayout.recordOverhead))
        try read(chunk, into: record)
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

    /// Encrypts a batch into the workspace.
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

    /// Returns the records of a batch of `size` bytes of plaintext, encrypted into the workspace before.
    static func encrypted(_ size: Int, chunks: Int, _ workspace: Workspace) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(workspace.records.slice(..<(size + chunks * ChunkLayout.recordOverhead)))
    }
}
