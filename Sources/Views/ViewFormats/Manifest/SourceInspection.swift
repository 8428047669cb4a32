internal import Glibc
internal import LinuxSystem

/// The kind of a file, as far as it shows without a key.
package struct SourceInspection: Sendable {
    package enum Content: Sendable {
        case empty
        /// `openssl enc` with a passphrase.
        case salted
        /// The same in base64 (`openssl enc -a`).
        case base64
        case playlist(Playlist)
        /// The name of its format.
        case plaintext(String)
        /// Possibly ciphertext: random bytes, with a length that is a multiple of 16.
        case opaque
        /// Not AES-CBC, and why.
        case other(String)
    }

    private static let sampleSize = 64 << 10
    /// In bits per byte. Of that many random bytes, all but one sample in millions have more than 7.99.
    private static let randomEntropy = 7.98

    /// Bytes.
    package let size: UInt64
    package let content: Content
    /// Bits per byte in the first bytes. Nil if the file is too short.
    package let entropy: Double?

    /// Throws `.store`, and `.malformed` if the file is cut meanwhile.
    package init(of source: SourceFile) throws(ViewError) {
        size = source.size
        let bytes = try Self.read(source, Int(min(source.size, UInt64(Self.sampleSize))))
        entropy = bytes.count == Self.sampleSize ? Self.entropy(of: bytes) : nil
        content = try Self.content(of: source, beginning: bytes, entropy)
    }

    private static func read(_ source: SourceFile, _ count: Int) throws(ViewError) -> [UInt8] {
        var bytes = [UInt8](repeating: 0, count: count)
        try bytes.withMutableBytes { (bytes) throws(ViewError) in try source.read(at: 0, into: bytes) }
        return bytes
    }

    private static func content(
        of source: SourceFile, beginning: [UInt8], _ entropy: Double?
    ) throws(ViewError) -> Content {
        if beginning.isEmpty { return .empty }
        if (try? ChainFormat.salt(of: source)) != nil { return .salted }
        if beginning.starts(with: ChainFormat.base64Start) { return .base64 }
        if source.size <= UInt64(Playlist.maximumSize), (try? Playlist.parse(beginning)) != nil,
            let playlist = try? Playlist.parse(try read(source, Int(source.size)))
        {
            return .playlist(playlist)
        }
        if let name = plainFormat(beginning) { return .plaintext(name) }
        if source.size % 16 != 0 { return .other("its length is not a multiple of 16") }
        if let entropy, entropy < randomEntropy { return .other("its bytes are too regular") }
        return .opaque
    }

    /// The format of a media file that is not encrypted, from its first bytes.
    private static func plainFormat(_ bytes: [UInt8]) -> String? {
        let packetSize = 188
        // Every packet of a transport stream begins with this byte (ISO/IEC 13818-1, 2.4.3.2).
        if bytes.count >= packetSize,
            stride(from: 0, to: min(bytes.count, 4 * packetSize), by: packetSize).allSatisfy({ bytes[$0] == 0x47 })
        {
            return "MPEG-TS"
        }
        // The type of the first box (ISO/IEC 14496-12, 4.2).
        let boxes = ["ftyp", "styp", "moof", "sidx", "moov"]
        if bytes.count >= 8, boxes.contains(where: { bytes[4..<8].elementsEqual($0.utf8) }) { return "MP4" }
        if bytes.starts(with: [0x1A, 0x45, 0xDF, 0xA3]) { return "Matroska" }
        return bytes.starts(with: "WEBVTT".utf8) ? "WebVTT" : nil
    }

    /// Shannon entropy, in bits per byte.
    private static func entropy(of bytes: [UInt8]) -> Double {
        var counts = [Int](repeating: 0, count: 256)
        for byte in bytes { counts[Int(byte)] += 1 }
        return counts.reduce(0) { sum, count in
            guard count > 0 else { return sum }
            let part = Double(count) / Double(bytes.count)
            return sum - part * log2(part)
        }
    }
}
