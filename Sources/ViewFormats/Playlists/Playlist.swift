/// A playlist of HTTP Live Streaming (RFC 8216), as far as decryption needs it: what it refers to, how that is encrypted,
/// and which parts of its text are different once it is not. All else is bytes that are kept.
package struct Playlist: Sendable {
    /// Maximum size, in bytes.
    package static let maximumSize = 16 << 20
    /// Maximum number of references. Each takes about 100 bytes while the playlist is read.
    package static let maximumReferences = 1 << 19

    package enum Kind: Sendable {
        case master
        case media
    }

    /// What a URI is there for.
    package enum Role: Sendable {
        case segment
        /// `EXT-X-MAP`: a media initialization section.
        case map
        /// A byte range of an I-frame playlist. It is one of the plaintext; the resource is encrypted as a whole
        /// (RFC 8216, 6.2.3 and 6.3.6).
        case frame
        /// A playlist that a master playlist refers to.
        case playlist
    }

    package struct Encryption: Equatable, Sendable {
        /// Which of `keys`.
        package var key: Int
        package var vector: InitialVector
    }

    package struct Reference: Sendable {
        package var role: Role
        /// Where the URI is, counted from 1.
        package var line: Int
        /// Of the text.
        package var uri: Range<Int>
        /// Ciphertext offsets; nil: the whole resource.
        package var bytes: Range<UInt64>?
        /// Nil: the bytes are plaintext.
        package var encryption: Encryption?
    }

    /// A part of the text that may not stay.
    struct Edit {
        enum Change {
            case removed
            /// The `n[@o]` of a reference's byte range.
            case bytes(reference: Int, showsOffset: Bool)
        }

        var range: Range<Int>
        var change: Change
    }

    package let text: [UInt8]
    package internal(set) var kind = Kind.media
    package internal(set) var references: [Reference] = []
    /// The URIs of its keys, each once.
    package internal(set) var keys: [[UInt8]] = []
    /// Why it cannot be shown decrypted, nor the segments that only it refers to.
    package internal(set) var fault: PlaylistError?
    /// What is wrong in a playlist without keys, which is shown as it is.
    package internal(set) var complaint: PlaylistError?
    /// In ascending order.
    var edits: [Edit] = []

    init(text: [UInt8]) {
        self.text = text
    }

    /// - Throws: where it is no playlist at all, or too large. Whatever else is wrong is `fault` or `complaint`.
    package static func parse(_ text: [UInt8]) throws(PlaylistError) -> Playlist {
        guard text.count <= maximumSize else {
            throw PlaylistError(line: 0, text: "a playlist of more than \(maximumSize >> 20) MiB")
        }
        var parser = PlaylistParser(text)
        return try parser.parse()
    }

    package func uri(of reference: Reference) -> [UInt8] {
        Array(text[reference.uri])
    }
}
