internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto

/// The kind of a file in an hls view.
package enum HlsContent: Sendable {
    /// Shown as it is: no playlist names it as encrypted.
    case plain
    /// Shown rewritten: `HlsIndex.open` returns the text. `size` is its length in bytes. Nil if that depends on keys.
    case playlist(size: UInt64?)
    case segment(HlsSegment)
    case samples(HlsSamples)
    case failed(ViewError)
}

/// A playlist that was just read, from which the mount's text is made. Equal only to itself.
final class HlsPlaylistContent: Equatable, Sendable {
    /// A file whose plaintext offsets the text contains.
    struct Needed: Sendable {
        let identity: FileIdentity
        /// From the source. The path can lead to another file by then.
        let path: [UInt8]
        let segment: HlsSegment
    }

    /// Empty if the text depends on no keys.
    let needed: [Needed]
    private let reading: HlsReading
    /// For each reference, its position in `needed`.
    private let numbers: [Int?]
    /// The source.
    private let root: Descriptor

    init(_ reading: HlsReading, needed: [Needed], numbers: [Int?], in root: Descriptor) {
        (self.reading, self.needed, self.numbers, self.root) = (reading, needed, numbers, root)
    }

    static func == (one: HlsPlaylistContent, other: HlsPlaylistContent) -> Bool { one === other }

    /// The text that the mount shows.
    ///
    /// - Parameter keys: of the needed files, one after another.
    func rendered(_ keys: [CbcKey]) throws(ViewError) -> [UInt8] {
        var rest = keys[...]
        let maps = try needed.map { (needed) throws(ViewError) in
            let own = Array(rest.prefix(needed.segment.keys.count))
            rest = rest.dropFirst(own.count)
            let source = try ViewError.ofStore { () throws(StoreError) in
                let file = try root.regularFile(beneath: needed.path)
                let status = try file.status()
                guard FileIdentity(status) == needed.identity else { throw .system(.staleNFSFileHandle) }
                return SourceFile(file, status)
            }
            return try ChainFormat.segment(needed.segment, of: source, keys: own)
        }
        return try rendered { (number, bytes) throws(ViewError) in try maps[number].plaintext(of: bytes) }
    }

    /// - Parameter plaintext: returns the plaintext offsets of these bytes of `needed[$0]`.
    func rendered(_ plaintext: (Int, Range<UInt64>) throws(ViewError) -> Range<UInt64>) throws(ViewError) -> [UInt8] {
        let text = try reading.playlist?.rendered { (number, reference) throws(ViewError) in
            var shown = reading.appearance(number, of: reference)
            if let needed = numbers[number], let bytes = reference.ciphertext {
                shown.bytes = try plaintext(needed, bytes)
            }
            return shown
        }
        guard let text = text ?? nil else { throw .malformed("the playlist's text becomes too long") }
        return text
    }
}
