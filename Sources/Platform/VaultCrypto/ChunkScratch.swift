internal import COpenSSL

/// The working memory of one ``ChunkCipher``: one locked allocation, cut into parts once.
struct ChunkScratch: ~Copyable {
    /// The number of the authenticator's one-time keys made in one call.
    static let maskCount = 32
    /// The number of CBC chains that advance together. Sixteen would gain 4 % for long runs.
    static let laneCount = 8
    /// Enough for 4 MiB in chunks of 4 KiB. A call of the generator takes a getpid(2) or two.
    private static let vectorPoolSize = 16 << 10

    private let slot: SecretSlot

    init() throws(CryptoError) {
        slot = try SecretMemory.allocate(count: 256 + Self.maskCount * 16 + Self.vectorPoolSize)
    }

    deinit { SecretMemory.deallocate(slot) }

    /// Poly1305's key, r ‖ s, 32 bytes.
    var authenticatorKey: UnsafeMutableRawPointer { slot.base }
    /// A computed tag, 16 bytes.
    var tag: UnsafeMutableRawPointer { slot.base + 32 }
    /// One AES block.
    var block: UnsafeMutableRawPointer { slot.base + 48 }
    /// The last ciphertext block of each chain, 16 bytes a lane.
    var lanes: UnsafeMutableRawPointer { slot.base + 64 }
    /// AES(macKey; IV), 16 bytes a chunk.
    var masks: UnsafeMutableRawPointer { slot.base + 256 }
    /// Random bytes for initial vectors.
    var vectorPool: UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(start: slot.base + 256 + Self.maskCount * 16, count: Self.vectorPoolSize)
    }

    /// Wipes everything derived from keys, but not the random vectors.
    func wipeKeys() { OPENSSL_cleanse(slot.base, 256 + Self.maskCount * 16) }
}
