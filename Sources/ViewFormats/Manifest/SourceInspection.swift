internal import Glibc
internal import LinuxSystem
internal import VaultCrypto

/// What a file is, as far as can be told without a key.
package struct SourceInspection: Sendable {
    package enum Content: Sendable {
        case empty
        /// `openssl enc` with a passphrase.
        case salted
        case playlist(Playlist)
        /// What it is called.
        case plaintext(String)
        /// May be ciphertext: its length is a multiple of 16, and nothing is to be seen in it.
        case opaque
        /// Not AES-CBC.
        case other(String)
    }

    /// A size of `cbc-chunks` that goes with the file's.
    package struct ChunkSize: Equatable, Sendable {
        /// Plaintext bytes.
        package let size: UInt64
        package let pieces: UInt64
        /// Whether all pieces are full: by chance, one file in `size` / 16 is like that.
        package let isExact: Bool
    }

    /// Bytes whose distribution is looked at.
    private static let sampleSize = 64 << 10
    /// Of that many random bytes: it is above 7.99 in all but one of millions.
    private static let randomEntropy = 7.98

    /// Bytes.
    package let size: UInt64
    package let content: Content
    /// Bits a byte of the beginning; nil where that is too short to tell.
    package let entropy: Double?

    /// Throws `.store`, and `.malformed` where the file is cut meanwhile.
    package init(of source: SourceFile) throws(ViewError) {
        size = source.size
        var bytes = [UInt8](repeating: 0, count: Int(min(source.size, UInt64(Self.sampleSize))))
        try bytes.withMutableBytes { (bytes) throws(ViewError) in try source.read(at: 0, into: bytes) }
        entropy = bytes.count == Self.sampleSize ? Self.entropy(of: bytes) : nil
        content = try Self.content(of: source, beginning: bytes, entropy)
    }

    private static func content(
        of source: SourceFile, beginning: [UInt8], _ entropy: Double?
    ) throws(ViewError) -> Content {
        if beginning.isEmpty { return .empty }
        if (try? OpenSSLSalt(of: source)) != nil { return .salted }
        if let playlist = try playlist(source, beginning) { return .playlist(playlist) }
        if let name = PlainMedia.name(of: beginning) { return .plaintext(name) }
        if source.size % 16 != 0 { return .other("its length is not a multiple of 16") }
        if let entropy, entropy < randomEntropy { return .other("its bytes are too regular") }
        return .opaque
    }

    /// A playlist, which is no more than ``Playlist/maximumSize``.
    private static func playlist(_ source: SourceFile, _ beginning: [UInt8]) throws(ViewError) -> Playlist? {
        guard source.size <= UInt64(Playlist.maximumSize), (try? Playlist.parse(beginning)) != nil else { return nil }
        var text = [UInt8](repeating: 0, count: Int(source.size))
        try text.withMutableBytes { (text) throws(ViewError) in try source.read(at: 0, into: text) }
        return try? Playlist.parse(text)
    }

    /// Shannon's, in bits a byte.
    private static func entropy(of bytes: [UInt8]) -> Double {
        var counts = [Int](repeating: 0, count: 256)
        for byte in bytes { counts[Int(byte)] += 1 }
        return counts.reduce(0) { sum, count in
            guard count > 0 else { return sum }
            let part = Double(count) / Double(bytes.count)
            return sum - part * log2(part)
        }
    }

    /// The powers of two from 4 KiB to 64 MiB of which the file has more than one piece, where it may be `cbc-chunks`. The
    /// length excludes none of them.
    package var chunkSizes: [ChunkSize] {
        guard case .opaque = content else { return [] }
        return (12...26).compactMap { power in
            let chunk = UInt64(1) << power
            let stride = ChunkPieces.stride(chunk, .pkcs7)
            guard size > stride else { return nil }
            let isExact = size % stride == 0
            return ChunkSize(size: chunk, pieces: size / stride + (isExact ? 0 : 1), isExact: isExact)
        }
    }
}
