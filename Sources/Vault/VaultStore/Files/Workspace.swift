internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import SystemPackage
package import VaultCrypto
package import VaultFormat

/// The buffers and cipher contexts of one thread. They are made once, so that a request allocates nothing.
package final class Workspace: SharingWorkerBuffers {
    /// Bytes of plaintext encrypted or decrypted at a time. Their ciphertext stays in the L2 cache.
    private static let batchSize = 128 << 10
    /// Bytes of the largest read or write in a FUSE request.
    package static let replySize = 1 << 20

    package let cipher: ChunkCipher
    /// Number of chunks in one batch, at least 1.
    package let batchChunks: Int
    /// Chunk records of one batch.
    package let records: UnsafeMutableRawBufferPointer
    /// The same memory, with room for the head of a log entry before the records and for its tag after them.
    let logEntry: UnsafeMutableRawBufferPointer
    /// Plaintext of one batch, while it is put together.
    package let assembly: UnsafeMutableRawBufferPointer
    /// Plaintext of one partly wanted chunk.
    package let edge: UnsafeMutableRawBufferPointer
    /// Plaintext for the kernel.
    package let reply: UnsafeMutableRawBufferPointer
    package var helper: RequestHelper?
    private let memory: UnsafeMutableRawPointer
    private let memorySize: Int

    /// - Throws: `ENOMEM`; the error of libcrypto.
    package init(layout: ChunkLayout) throws(StoreError) {
        cipher = try StoreError.ofCrypto(ChunkCipher())
        let chunkSize = layout.chunkSize
        batchChunks = max(1, Self.batchSize / chunkSize)
        let recordsSize = Self.largestBatch(layout)
        let assemblySize = batchChunks * chunkSize
        let entrySize = LogEntry.headSize + recordsSize + LogEntry.tagSize
        memorySize = entrySize + assemblySize + chunkSize + Self.replySize
        var locked: Int32 = 0
        guard let memory = linux_map_secret_memory(memorySize, &locked) else { throw .system(.noMemory) }
        self.memory = memory
        // Replies start on a page of their own.
        reply = UnsafeMutableRawBufferPointer(start: memory, count: Self.replySize)
        assembly = UnsafeMutableRawBufferPointer(start: memory + Self.replySize, count: assemblySize)
        edge = UnsafeMutableRawBufferPointer(start: memory + Self.replySize + assemblySize, count: chunkSize)
        logEntry = UnsafeMutableRawBufferPointer(
            start: memory + Self.replySize + assemblySize + chunkSize, count: entrySize)
        records = Self.records(of: logEntry)
    }

    /// Returns the part of a buffer like `logEntry` for records.
    static func records(of logEntry: UnsafeMutableRawBufferPointer) -> UnsafeMutableRawBufferPointer {
        logEntry.slice(LogEntry.headSize..<(logEntry.count - LogEntry.tagSize))
    }

    /// Decrypts adjacent records, beginning with chunk `first`.
    /// - Parameter onUnverified: called for each record that does not verify, with its chunk and the plaintext to fill.
    ///   Returns false to end the scan.
    /// - Returns: false if `onUnverified` has ended the scan.
    /// - Throws: the error of libcrypto; the error of `onUnverified`.
    package func scan(
        _ records: UnsafeRawBufferPointer, first: UInt64, _ layout: ChunkLayout, _ keys: ChunkKeys,
        into plaintext: UnsafeMutableRawBufferPointer,
        _ onUnverified: (UInt64, UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer) throws(StoreError) -> Bool
    ) throws(StoreError) -> Bool {
        var chunk = first
        var recordStart = 0
        var start = 0
        while start < plaintext.count {
            let good = try StoreError.ofCrypto { () throws(CryptoError) in
                try cipher.decrypt(
                    records.slice(recordStart...), firstChunkIndex: chunk, chunkSize: layout.chunkSize, keys: keys,
                    into: plaintext.slice(start...))
            }
            chunk += UInt64(good)
            recordStart += good * layout.recordSize
            start += good * layout.chunkSize
            guard start < plaintext.count else { break }
            let piece = plaintext.slice(start..<min(start + layout.chunkSize, plaintext.count))
            let record = records.slice(recordStart..<(recordStart + piece.count + ChunkLayout.recordOverhead))
            guard try onUnverified(chunk, record, piece) else { return false }
            chunk += 1
            recordStart += record.count
            start += piece.count
        }
        return true
    }

    /// Zeroes the buffers and forgets the keys last used. Called by its own thread, between requests.
    package func wipe() {
        memset(memory, 0, memorySize)
        cipher.forgetKeys()
        linux_scrub_thread()
    }

    /// Bytes of the records of one batch.
    static func largestBatch(_ layout: ChunkLayout) -> Int {
        max(1, batchSize / layout.chunkSize) * layout.recordSize
    }

    deinit { linux_unmap_secret_memory(memory, memorySize) }
}
