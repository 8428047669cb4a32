internal import CLinux
package import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto

/// One thread's buffers and cipher contexts for reads, allocated once, so that a request allocates nothing.
package final class ViewWorkspace: SharingWorkerBuffers {
    /// Bytes of one block of the cache.
    package static let pageSize = 4096
    /// Reads of more pages bypass the block cache, because they would evict the pages of random reads.
    static let largestCachedRun = 16
    /// Bytes decrypted at a time. Their ciphertext stays in the L2 cache.
    static let batchSize = 128 << 10
    /// A batch, the block before it, the blocks at its two ends, and the gaps between chains.
    private static let ciphertextSize = batchSize + pageSize
    /// The largest read of FUSE.
    package static let replySize = 1 << 20
    private static let memorySize = replySize + ciphertextSize + largestCachedRun * pageSize + 32

    package let decryptor: CbcDecryptor
    /// Plaintext for the kernel.
    package let reply: UnsafeMutableRawBufferPointer
    /// Ciphertext of one batch.
    let ciphertext: UnsafeMutableRawBufferPointer
    /// Plaintext of partly wanted pages.
    let assembly: UnsafeMutableRawBufferPointer
    /// Plaintext of one partly wanted AES block.
    let block: UnsafeMutableRawBufferPointer
    /// A chain's own initial vector.
    let vector: UnsafeMutableRawBufferPointer
    package var helper: RequestHelper?
    private let memory: UnsafeMutableRawPointer

    /// Allocates the buffers. Throws `.store` without memory.
    package init() throws(ViewError) {
        decryptor = try ViewError.ofCrypto(CbcDecryptor())
        var locked: Int32 = 0
        guard let memory = linux_map_secret_memory(Self.memorySize, &locked) else { throw .store(.system(.noMemory)) }
        self.memory = memory
        var next = memory
        func part(_ size: Int) -> UnsafeMutableRawBufferPointer {
            defer { next += size }
            return UnsafeMutableRawBufferPointer(start: next, count: size)
        }
        // Begin with the replies, so that they begin at a page.
        reply = part(Self.replySize)
        assembly = part(Self.largestCachedRun * Self.pageSize)
        ciphertext = part(Self.ciphertextSize)
        block = part(16)
        vector = part(16)
    }

    /// Zeroes the buffers and forgets the last key. Call this from the workspace's thread, between requests.
    package func wipe() {
        memset(memory, 0, Self.memorySize)
        decryptor.forgetKeys()
        linux_scrub_thread()
    }

    deinit { linux_unmap_secret_memory(memory, Self.memorySize) }
}
