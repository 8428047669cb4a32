/// A defect of a playlist. The text is for people: lower case, no full stop, no secrets.
package struct PlaylistError: Error, Hashable, Sendable {
    /// Counted from 1. 0 for the whole playlist.
    package var line: Int
    package var text: String
}

/// A playlist of HTTP Live Streaming (RFC 8216), as far as decryption needs it: the references of a media playlist, their
/// encryption, and the parts of its text that change. All other bytes stay as they are.
package struct Playlist: Sendable {
    /// Maximum size, in bytes.
    package static let maximumSize = 16 << 20
    static let tooLarge = "a playlist of more than \(maximumSize >> 20) MiB"
    /// Maximum number of references. Each takes about 100 bytes while the playlist is read.
    package static let maximumReferences = 1 << 19

    package enum Kind: Sendable {
        case master, media
    }

    /// The purpose of a URI.
    package enum Role: Sendable {
        case segment
        /// `EXT-X-MAP`: a media initialization section.
        case map
        /// A byte range in an I-frame playlist. It is a range of the plaintext, and the resource is encrypted as a whole
        /// (RFC 8216, 6.2.3 and 6.3.6).
        case frame
    }

    package struct Encryption: Equatable, Sendable {
        /// Position in `keys`.
        package var key: Int
        package var vector: InitialVector
    }

    package struct Reference: Sendable {
        package var role: Role
        /// The line of the URI, counted from 1.
        package var line: Int
        /// Position in the text.
        package var uri: Range<Int>
        /// Ciphertext offsets. Nil for the whole resource.
        package var bytes: Range<UInt64>?
        /// Nil if the bytes are plaintext.
        package var encryption: Encryption?
    }

    /// A part of the text that changes.
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
    /// The URIs of the keys, each once.
    package internal(set) var keys: [[UInt8]] = []
    /// Why the playlist, and segments that only it names, cannot be shown decrypted.
    package internal(set) var fault: PlaylistError?
    /// The defect of a playlist without keys, which is shown as it is.
    package internal(set) var complaint: PlaylistError?
    /// In ascending order.
    var edits: [Edit] = []

    init(text: [UInt8]) { self.text = text }

    /// - Throws: if the text is not a playlist, or too large. Other defects become `fault` or `complaint`.
    package static func parse(_ text: [UInt8]) throws(PlaylistError) -> Playlist {
        guard text.count <= maximumSize else { throw PlaylistError(line: 0, text: tooLarge) }
        var parser = PlaylistParser(text)
        return try parser.parse()
    }

    /// The text that the mount shows: without key lines, and with byte ranges of the plaintext.
    ///
    /// - Parameter plaintext: returns the plaintext offsets of a reference's byte range. Nil if they do not change.
    package func rendered<Failure>(
        _ plaintext: (Int, Reference) throws(Failure) -> Range<UInt64>?
    ) throws(Failure) -> [UInt8] {
        var result: [UInt8] = []
        result.reserveCapacity(text.count)
        var position = 0
        for edit in edits {
            result += text[position..<edit.range.lowerBound]
            position = edit.range.upperBound
            guard case .bytes(let number, let showsOffset) = edit.change else { continue }
            if let range = try plaintext(number, references[number]) {
                result += "\(range.upperBound - range.lowerBound)".utf8
                if showsOffset { result += "@\(range.lowerBound)".utf8 }
            } else {
                result += text[edit.range]
            }
        }
        return result + text[position...]
    }

    /// Bytes of the rendered text if no byte range changes.
    var sizeWithoutKeys: UInt64 {
        var size = text.count
        for edit in edits {
            if case .removed = edit.change { size -= edit.range.count }
        }
        return UInt64(size)
    }
}
