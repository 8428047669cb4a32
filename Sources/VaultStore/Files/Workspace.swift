internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
package import VaultFormat

/// One thread's buffers and cipher contexts, made once, so that a request allocates nothing. Not for sharing.
package final class Workspace {
    /// How many bytes of plaintext are encrypted or decrypted at a time: their ciphertext stays in the L2 cache.
    private static let batchSize = 128 << 10
    /// The largest read or write that FUSE passes on.
    package static let replySize = 1 << 20

    package let cipher: ChunkCipher
    /// How many chunks one batch holds, at least one.
    let batchChunks: Int
    /// Chunk records of one batch.
    let records: UnsafeMutableRawBufferPointer
    /// Plaintext of one batch that is being put together.
    let assembly: UnsafeMutableRawBufferPointer
    /// Plaintext of one chunk of which only a part is wanted.
    let edge: UnsafeMutableRawBufferPointer
    /// Plaintext to be handed to the kernel.
    package let reply: UnsafeMutableRawBufferPointer
    private let memory: UnsafeMutableRawPointer
    private let memorySize: Int

    package init(layout: ChunkLayout) throws(StoreError) {
        do { cipher = try ChunkCipher() } catch { throw StoreError(error) }
        let chunkSize = layout.chunkSize
        batchChunks = max(1, Self.batchSize / chunkSize)
        let recordsSize = batchChunks * layout.recordSize
        let assemblySize = batchChunks * chunkSize
        memorySize = recordsSize + assemblySize + chunkSize + Self.replySize
        var locked: Int32 = 0
        guard let memory = linux_map_secret_memory(memorySize, &locked) else { throw .system(.noMemory) }
        self.memory = memory
        // Replies start on a page of their own.
        reply = UnsafeMutableRawBufferPointer(start: memory, count: Self.replySize)
        assembly = UnsafeMutableRawBufferPointer(start: memory + Self.replySize, count: assemblySize)
        edge = UnsafeMutableRawBufferPointer(start: memory + Self.replySize + assemblySize, count: chunkSize)
        records = UnsafeMutableRawBufferPointer(
            start: memory + Self.replySize + assemblySize + chunkSize, count: recordsSize)
    }

    /// Zeroes the buffers and forgets the keys last used. By its own thread, between requests.
    package func wipe() {
        memset(memory, 0, memorySize)
        cipher.forgetKeys()
        linux_scrub_thread()
    }

    deinit {
        linux_unmap_secret_memory(memory, memorySize)
    }
}
