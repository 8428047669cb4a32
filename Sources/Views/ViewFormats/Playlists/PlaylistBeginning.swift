/// Recognizes playlists in forms unreadable for players, and so for this parser. The view must name them, because they
/// may describe ciphertext.
enum PlaylistBeginning {
    /// The number of bytes needed.
    static let size = 64

    private static let first = Array("#EXTM3U".utf8)
    private static let magics: [(name: String, bytes: [UInt8])] = [
        ("gzip", [0x1F, 0x8B]), ("zstd", [0x28, 0xB5, 0x2F, 0xFD]), ("bzip2", Array("BZh".utf8)),
        ("xz", [0xFD, 0x37, 0x7A, 0x58, 0x5A]), ("ZIP", [0x50, 0x4B, 3, 4]),
    ]

    /// Returns true for the text of a playlist.
    static func isPlaylist(_ text: [UInt8]) -> Bool { withoutMark(text).starts(with: first) }

    /// Returns the reason for which a text that begins like a playlist is none, or nil for any other text.
    static func unreadable(_ text: [UInt8]) -> String? {
        let text = Array(text.prefix(4 * size))
        if let wide = wideText(text), trimmed(wide).starts(with: first) {
            return "a playlist in UTF-16: convert it to UTF-8"
        }
        if !isPlaylist(text), trimmed(withoutMark(text)).starts(with: first) {
            return "a playlist whose first line is not #EXTM3U: remove what stands before it"
        }
        return nil
    }

    /// Returns the reason for which a file with a playlist's name is none, if it is compressed.
    static func compressed(_ text: [UInt8]) -> String? {
        magics.first { text.starts(with: $0.bytes) }.map { "a playlist compressed with \($0.name): decompress it" }
    }

    /// Returns the reason for which a file with another name that begins like a playlist is none. Nil for any other.
    ///
    /// - Parameter isNamed: true if the name without its last ending is a playlist's, such as that of `index.m3u8.gz`.
    static func misfit(_ text: [UInt8], isNamed: Bool) -> String? {
        if let reason = unreadable(text) { return reason }
        if isPlaylist(text) { return "a playlist whose name does not end with .m3u8 or .m3u: rename it" }
        return isNamed ? compressed(text) : nil
    }

    static func withoutMark(_ text: [UInt8]) -> ArraySlice<UInt8> {
        text.starts(with: [0xEF, 0xBB, 0xBF]) ? text.dropFirst(3) : text[...]
    }

    private static func trimmed(_ text: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
        text.drop { " \t\r\n\u{0}".utf8.contains($0) }
    }

    /// Returns the lower bytes of UTF-16 in either order if the other bytes are zero, or nil for other texts.
    private static func wideText(_ text: [UInt8]) -> ArraySlice<UInt8>? {
        let hasMark = text.starts(with: [0xFF, 0xFE]) || text.starts(with: [0xFE, 0xFF])
        let units = text.dropFirst(hasMark ? 2 : 0)
        guard units.count >= 2 * first.count else { return nil }
        let halves = (0...1).map { half in units.enumerated().filter { $0.offset % 2 == half }.map(\.element) }
        // The half with the zeros shows the order.
        for half in 0...1 where halves[1 - half].prefix(first.count).allSatisfy({ $0 == 0 }) {
            return halves[half][...]
        }
        return nil
    }
}
