/// A defect of a playlist. The text is for people: lower case, no full stop, no secrets.
package struct PlaylistError: Error, Hashable, Sendable {
    /// Counted from 1. 0 for the whole playlist.
    package var line: Int
    package var text: String
}

/// A playlist of HTTP Live Streaming (RFC 8216), as far as decryption needs it: every URI in it, the encryption of what
/// it names, and the parts of the text that can change. All other bytes stay as they are.
package struct Playlist: Sendable {
    /// Maximum size, in bytes.
    package static let maximumSize = 16 << 20
    static let tooLarge = "a playlist of more than \(maximumSize >> 20) MiB"
    /// Maximum number of references, so that a reading takes less than two seconds and 100 MiB. Meanwhile each takes
    /// about 400 bytes, and a lookup on the disk.
    package static let maximumReferences = 1 << 17

    package enum Kind: Sendable {
        case master, media
    }

    /// The purpose of a URI.
    package enum Role: Sendable {
        case segment
        /// `EXT-X-MAP`: a media initialization section.
        case map
        /// A byte range in an I-frame playlist. It is a range of the plaintext, and the resource is encrypted as a
        /// whole (RFC 8216, 6.2.3 and 6.3.6).
        case frame
        /// A URI of any other tag of a media playlist, such as `EXT-X-PART`, also of future tags. It may name bytes
        /// encrypted by the keys in force.
        case other
        /// Another playlist, named by a master playlist.
        case playlist
    }

    package enum Encryption: Equatable, Sendable {
        /// The resource, or its byte range, is one CBC chain with PKCS#7. `key` is a position in `keys`.
        case chain(key: Int, vector: InitialVector, cipher: ViewCipher)
        /// The resource has encrypted samples (`SAMPLE-AES`), described by its boxes. `key` is a position in `keys`.
        case samples(key: Int)
        /// The keys in force cannot be used here, for this reason.
        case unusable(PlaylistError)
    }

    package struct Reference: Sendable {
        package var role: Role
        /// The line of the URI, counted from 1.
        package var line: Int
        /// Position of that line in the text.
        var start: Int
        /// Position of the URI in the text.
        package var uri: Range<Int>
        /// The URI with its variables replaced (`EXT-X-DEFINE`); nil if it has none.
        var expanded: [UInt8]?
        /// Ciphertext offsets. Nil for the whole resource.
        package var bytes: Range<UInt64>?
        /// Position in the text of `n[@o]`.
        var bytesText: (range: Range<Int>, showsOffset: Bool)?
        /// Nil if the bytes are plaintext.
        package var encryption: Encryption?
        /// The position of the `EXT-X-MAP` in force in `references`.
        var map: Int?
        /// The number of key lines before this line.
        var keyLines: Int
        /// True if the vector is the number of a segment, unknown to an I-frame playlist.
        var isVectorImplied = false
        /// True for a value of an unknown tag that may be a URI. It counts only if it leads to a file.
        var isGuess = false

        /// False for other tags without keys and offsets, such as those of plain parts.
        var isLookedUp: Bool { role != .other || encryption != nil || bytes != nil }

        /// True if it may say something of a file.
        var mayClaim: Bool { isLookedUp && role != .playlist }

        /// Ciphertext offsets. A length not divisible by 16 is the plaintext's, and is widened to whole blocks, as
        /// clients do (draft-pantos-hls-rfc8216bis, 6.3.6).
        var ciphertext: Range<UInt64>? {
            guard let bytes, case .chain = encryption, role != .frame else { return bytes }
            return bytes.lowerBound..<(bytes.lowerBound + (bytes.upperBound - bytes.lowerBound + 15) / 16 * 16)
        }

        /// Returns true for a byte range of ciphertext ending in the last block of a resource, which can be padding.
        func isTail(of size: UInt64) -> Bool {
            guard case .chain = encryption, role != .frame else { return false }
            return bytes.map { $0.upperBound + 16 > size } ?? false
        }
    }

    /// An `EXT-X-KEY`.
    struct KeyLine: Sendable {
        /// Position in the text, with the line end.
        var whole: Range<Int>
        /// The line's KEYFORMAT. Nil for `METHOD=NONE`, which ends all keys.
        var format: [UInt8]?
    }

    package let text: [UInt8]
    package internal(set) var kind = Kind.media
    /// In the order of the text.
    package internal(set) var references: [Reference] = []
    /// Number of references that may say something of a file.
    var claimCount = 0
    /// The URIs of the usable keys, each once.
    package internal(set) var keys: [[UInt8]] = []
    /// The ciphers of the keys of whole segments, by position in `keys`.
    var keyCiphers: [Int: ViewCipher] = [:]
    /// The reason for which the playlist, and segments named by it alone, cannot be shown decrypted.
    package internal(set) var fault: PlaylistError?
    /// The defect of a playlist without keys, which is shown as it is.
    package internal(set) var complaint: PlaylistError?
    /// In the order of the text.
    var keyLines: [KeyLine] = []
    /// Positions of the `EXT-X-SESSION-KEY` lines.
    var sessionKeyLines: [Range<Int>] = []
    /// True if the playlist has a key.
    var usesKeys = false
    /// True if there is a `SAMPLE-AES` key. Boxes then decide, because key lines stand before clear segments, too.
    var usesSamples = false

    init(text: [UInt8]) { self.text = text }

    /// Parses a text. Most defects become `fault` or `complaint`.
    /// - Throws: if the text is not a playlist, or too large.
    package static func parse(_ text: [UInt8], room: Int = .max) throws(PlaylistError) -> Playlist {
        guard text.count <= maximumSize else { throw PlaylistError(line: 0, text: tooLarge) }
        var parser = PlaylistParser(text, room: room)
        return try parser.parse()
    }

    /// Returns the cipher of a key of whole segments.
    func cipher(of key: Int) -> ViewCipher { keyCiphers[key] ?? .aes128CBC }

    func uri(of reference: Reference) -> ArraySlice<UInt8> { reference.expanded?[...] ?? text[reference.uri] }
}
