internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
package import VaultCrypto

/// One thread's buffers and cipher contexts for reading files of views, made once, so that a request allocates nothing.
/// Not for sharing.
package final class ViewWorkspace {
    /// Plaintext bytes of one block of the cache.
    package static let pageSize = 4096
    /// Requests of more pages than this stream by the block cache: they would only push out what random reads use.
    static let largestCachedRun = 16
    /// How many bytes of plaintext are decrypted at a time: their ciphertext stays in the L2 cache.
    static let batchSize = 128 << 10
    /// Room for the block before a batch, those it begins and ends in, and what lies between chains.
    private static let ciphertextSize = batchSize + pageSize
    /// The largest read that FUSE passes on.
    package static let replySize = 1 << 20
    private static let memorySize = replySize + ciphertextSize + largestCachedRun * pageSize + 32

    package let decryptor: CbcDecryptor
    /// Plaintext to be handed to the kernel.
    package let reply: UnsafeMutableRawBufferPointer
    /// Ciphertext of one batch.
    let ciphertext: UnsafeMutableRawBufferPointer
    /// Plaintext of pages of which only a part is wanted.
    let assembly: UnsafeMutableRawBufferPointer
    /// Plaintext of one AES block of which only a part is wanted.
    let block: UnsafeMutableRawBufferPointer
    /// A chain's own initial vector.
    let vector: UnsafeMutableRawBufferPointer
    private let memory: UnsafeMutableRawPointer

    /// Throws `.store` where there is no memory.
    package init() throws(ViewError) {
        do { decryptor = try CbcDecryptor() } catch { throw .store(StoreError(error)) }
        var locked: Int32 = 0
        guard let memory = linux_map_secret_memory(Self.memorySize, &locked) else { throw .store(.system(.noMemory)) }
        self.memory = memory
        var next = memory
        func part(_ size: Int) -> UnsafeMutableRawBufferPointer {
            defer { next += size }
            return UnsafeMutableRawBufferPointer(start: next, count: size)
        }
        // Replies start on a page of their own.
        reply = part(Self.replySize)
        assembly = part(Self.largestCachedRun * Self.pageSize)
        ciphertext = part(Self.ciphertextSize)
        block = part(16)
        vector = part(16)
    }

    /// Zeroes the buffers and forgets the key last used. By its own thread, between requests.
    package func wipe() {
        memset(memory, 0, Self.memorySize)
        decryptor.forgetKeys()
        linux_scrub_thread()
    }

    deinit {
        linux_unmap_secret_memory(memory, Self.memorySize)
    }
}
