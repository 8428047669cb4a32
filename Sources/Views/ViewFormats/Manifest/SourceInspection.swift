internal import Glibc

/// The kind of a file, as far as it can be seen without a key.
package struct SourceInspection: Sendable {
    package enum Content: Sendable {
        case empty
        /// `openssl enc` with a passphrase.
        case salted
        /// The same in base64 (`openssl enc -a`).
        case base64
        case playlist(Playlist)
        /// MP4 with encrypted samples.
        case samples(Mp4Description)
        /// MP4 beyond the abilities of a view, and the reason.
        case unsupported(String)
        /// The name of its format.
        case plaintext(String)
        /// Possibly ciphertext: random bytes of a length divisible by 16.
        case opaque
        /// Not AES-CBC, and the reason.
        case other(String)
    }

    private static let sampleSize = 64 << 10
    /// Number of bytes that show the format of a media file.
    private static let headSize = 2048
    private static let entropySize = 4096
    /// In bits per byte. Except for one sample in millions, so many random bytes have more than 7.99.
    private static let randomEntropy = 7.98

    private static let mp4Name = "MP4"
    package static let packetsName = "MPEG-TS"
    private static let subtitlesName = "WebVTT"

    /// Length in bytes.
    package let size: UInt64
    package let content: Content
    /// Bits per byte at the beginning. Nil for a short file.
    package let entropy: Double?

    /// Inspects a file. Throws `.store`, and `.malformed` if the file is cut meanwhile.
    package init(of source: SourceFile) throws(ViewError) {
        size = source.size
        let bytes = try source.bytes(at: 0, Int(min(source.size, UInt64(Self.sampleSize))))
        entropy = bytes.count == Self.sampleSize ? Self.entropy(of: bytes) : nil
        content = try Self.content(of: source, beginning: bytes, entropy)
    }

    /// Returns the format of a file that begins like an unencrypted media file, or nil.
    static func plaintextFormat(of source: SourceFile) throws(ViewError) -> String? {
        plainFormat(try source.bytes(at: 0, Int(min(source.size, UInt64(headSize)))), size: source.size)
    }

    /// Returns true for WebVTT.
    static func isSubtitles(_ source: SourceFile) throws(ViewError) -> Bool {
        try plaintextFormat(of: source) == subtitlesName
    }

    /// Returns true for random bytes of a file, more than a few blocks, which may be several segments.
    static func looksEncrypted(_ source: SourceFile, _ range: Range<UInt64>) throws(ViewError) -> Bool {
        let size = range.upperBound - range.lowerBound
        guard size > 64 else { return false }
        let bytes = try source.bytes(at: range.lowerBound, Int(min(size, UInt64(entropySize))))
        // The entropy of n random bytes is about 8 − 184/n (Miller–Madow).
        return plainFormat(bytes, size: size) == nil && (bytes.count < entropySize || entropy(of: bytes) > 7.8)
    }

    private static func content(
        of source: SourceFile, beginning: [UInt8], _ entropy: Double?
    ) throws(ViewError) -> Content {
        if beginning.isEmpty { return .empty }
        if (try? ChainFormat.salt(of: source)) != nil { return .salted }
        if beginning.starts(with: ChainFormat.base64Start) { return .base64 }
        if source.size <= UInt64(Playlist.maximumSize), (try? Playlist.parse(beginning)) != nil,
            let playlist = try? Playlist.parse(try source.bytes(at: 0, Int(source.size)))
        {
            return .playlist(playlist)
        }
        if let name = plainFormat(beginning, size: source.size) {
            guard name == mp4Name else { return .plaintext(name) }
            do throws(ViewError) {
                return try Mp4Description(of: source).map { .samples($0) } ?? .plaintext(name)
            } catch .malformed(let reason) {
                return .unsupported(reason)
            }
        }
        if source.size % 16 != 0 {
            return .other(
                "its length is not a multiple of 16, so it has a header or a MAC, or is something else")
        }
        if let entropy, entropy < randomEntropy { return .other("its bytes are too regular") }
        return .opaque
    }

    /// Returns the format of an unencrypted media file, from its first bytes. Random bytes look so once in 2^28 files.
    private static func plainFormat(_ bytes: [UInt8], size: UInt64) -> String? {
        let packetSize = 188
        // Each packet of a transport stream begins with this byte (ISO/IEC 13818-1, 2.4.3.2).
        let packets = stride(from: 0, to: min(bytes.count, 8 * packetSize), by: packetSize)
        let mayBeFew = size % 16 != 0 && size % UInt64(packetSize) == 0
        if bytes.count >= packetSize, mayBeFew || packets.underestimatedCount >= 4,
            packets.allSatisfy({ bytes[$0] == 0x47 })
        {
            return packetsName
        }
        // An MP4 file begins with the size and the type of its first box (ISO/IEC 14496-12, 4.2).
        let boxes = ["ftyp", "styp", "moof", "sidx", "ssix", "moov", "emsg", "prft", "uuid"]
        if bytes.count >= 8, boxes.contains(where: { bytes[4..<8].elementsEqual($0.utf8) }) { return mp4Name }
        if bytes.starts(with: [0x1A, 0x45, 0xDF, 0xA3]) { return "Matroska" }
        // Packed audio has a tag of version 2 to 4 before it (RFC 8216, 3.4).
        if bytes.starts(with: "ID3".utf8), bytes.count >= 10, 2...4 ~= bytes[3], bytes[6..<10].allSatisfy({ $0 < 0x80 })
        {
            return "packed audio"
        }
        if isFrames(bytes) { return "packed audio" }
        if isJPEG(bytes) { return "JPEG" }
        let others: [(String, [UInt8])] = [("PNG", [0x89, 0x50, 0x4E, 0x47]), ("ZIP", [0x50, 0x4B, 3, 4])]
        if let other = others.first(where: { bytes.starts(with: $0.1) }) { return other.0 }
        return PlaylistBeginning.withoutMark(bytes).starts(with: "WEBVTT".utf8) ? subtitlesName : nil
    }

    /// Returns true for two markers, the second with its length or its name (ISO/IEC 10918-1, annex B; JFIF; Exif).
    private static func isJPEG(_ bytes: [UInt8]) -> Bool {
        guard bytes.count >= 10, bytes.starts(with: [0xFF, 0xD8, 0xFF]) else { return false }
        let name = bytes[6..<10]
        switch bytes[3] {
        case 0xE0: return name.elementsEqual("JFIF".utf8)
        case 0xE1: return name.elementsEqual("Exif".utf8)
        // The marker has one or two tables.
        case 0xDB: return bytes[4] == 0 && [67, 132].contains(bytes[5])
        default: return false
        }
    }

    /// Returns true for three frames of AAC, one after the other (ADTS, ISO/IEC 13818-7, 6.2).
    private static func isFrames(_ bytes: [UInt8]) -> Bool {
        var start = 0
        for _ in 0..<3 {
            guard bytes.count >= start + 7, bytes[start] == 0xFF, bytes[start + 1] & 0xF6 == 0xF0 else { return false }
            let length = Int(bytes[start + 3] & 3) << 11 | Int(bytes[start + 4]) << 3 | Int(bytes[start + 5]) >> 5
            guard length >= 7 else { return false }
            start += length
        }
        return true
    }

    /// Returns the Shannon entropy, in bits per byte.
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
