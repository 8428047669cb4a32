package import LinuxSystem

/// A playlist that was just read, on the way to what the mount shows.
package struct HlsPlaylistContent: Sendable {
    /// A file whose plaintext the text has offsets of.
    package struct Needed: Sendable {
        package let identity: FileIdentity
        /// For `HlsTree.file`; what it opens may by then be another file.
        package let path: [UInt8]
        package let segment: HlsSegment
    }

    /// Empty where no keys are needed.
    package let needed: [Needed]
    private let playlist: Playlist
    /// For each reference its position in `needed`.
    private let numbers: [Int?]

    init(_ playlist: Playlist, needed: [Needed], numbers: [Int?]) {
        self.playlist = playlist
        self.needed = needed
        self.numbers = numbers
    }

    /// The text that the mount shows.
    ///
    /// - Parameter plaintext: the plaintext offsets of these bytes of `needed[$0]` (`HlsRangeMap` knows them).
    package func rendered(
        _ plaintext: (Int, Range<UInt64>) throws(ViewError) -> Range<UInt64>
    ) throws(ViewError) -> [UInt8] {
        try playlist.rendered { (number, reference) throws(ViewError) in
            guard let needed = numbers[number], let bytes = reference.bytes else { return nil }
            return try plaintext(needed, bytes)
        }
    }
}
