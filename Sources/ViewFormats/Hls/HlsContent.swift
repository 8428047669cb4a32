package import LinuxSystem

/// The kind of a file in an hls view.
package enum HlsContent: Sendable {
    /// Shown as it is: no playlist names it as encrypted.
    case plain
    /// Shown rewritten: `HlsIndex.open` returns the text. `size` is its length in bytes. Nil if that depends on keys.
    case playlist(size: UInt64?)
    case segment(HlsSegment)
    case failed(ViewError)
}

/// A playlist that was just read, from which the mount's text is made.
package struct HlsPlaylistContent: Sendable {
    /// A file whose plaintext offsets the text contains.
    package struct Needed: Sendable {
        package let identity: FileIdentity
        /// For `HlsTree.file`. The path can lead to another file by then.
        package let path: [UInt8]
        package let segment: HlsSegment
    }

    /// Empty if the text depends on no keys.
    package let needed: [Needed]
    let playlist: Playlist
    /// For each reference, its position in `needed`.
    let numbers: [Int?]

    /// The text that the mount shows.
    ///
    /// - Parameter plaintext: returns the plaintext offsets of these bytes of `needed[$0]`.
    package func rendered(
        _ plaintext: (Int, Range<UInt64>) throws(ViewError) -> Range<UInt64>
    ) throws(ViewError) -> [UInt8] {
        try playlist.rendered { (number, reference) throws(ViewError) in
            guard let needed = numbers[number], let bytes = reference.bytes else { return nil }
            return try plaintext(needed, bytes)
        }
    }
}
