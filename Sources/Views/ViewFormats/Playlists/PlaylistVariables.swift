/// The variables of a playlist (`EXT-X-DEFINE`, draft-pantos-hls-rfc8216bis 4.3): `{$name}` in URIs and in values.
struct PlaylistVariables {
    /// Maximum number of bytes of all replaced values, so that a hostile playlist takes bounded memory.
    private static let maximumSize = Playlist.maximumSize
    private static let maximumNameSize = 256
    private static let start = Array("{$".utf8)

    private var values: [ArraySlice<UInt8>: ArraySlice<UInt8>] = [:]
    private var size = 0

    /// Adds the variable of an `EXT-X-DEFINE`. A value from another playlist (`IMPORT`) or from this one's own URL
    /// (`QUERYPARAM`) is not known here, so such a variable stays undefined.
    ///
    /// - Returns: false for another value of the same variable, because players may take either.
    mutating func define(_ attributes: PlaylistAttributes) -> Bool {
        guard let name = attributes["NAME"], let value = attributes["VALUE"] else { return true }
        return values.updateValue(value, forKey: name).map { $0 == value } ?? true
    }

    /// Returns true if the text contains a variable, defined or not.
    static func isUsed(in text: ArraySlice<UInt8>) -> Bool {
        var rest = text
        while let brace = rest.firstIndex(of: start[0]) {
            rest = rest[(brace + 1)...]
            if rest.first == start[1] { return true }
        }
        return false
    }

    /// Returns the text with its variables replaced, except undefined ones. Nil without any, or for too large values.
    mutating func expanded(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        guard Self.isUsed(in: text) else { return nil }
        var result: [UInt8] = []
        var rest = text
        // The next closing brace, or the end.
        var close = text.startIndex
        while let byte = rest.first {
            var (piece, next) = (rest.prefix(1), rest.startIndex + 1)
            if byte == Self.start[0], rest.dropFirst().first == Self.start[1] {
                if close < rest.startIndex { close = rest.startIndex }
                close = rest[close...].firstIndex(of: UInt8(ascii: "}")) ?? rest.endIndex
                if close < rest.endIndex, close - rest.startIndex <= Self.maximumNameSize,
                    let value = values[rest[(rest.startIndex + 2)..<close]]
                {
                    (piece, next) = (value, close + 1)
                }
            }
            guard size + result.count + piece.count <= Self.maximumSize else {
                // Stop for good, because the next text would take as long.
                size = Self.maximumSize
                return nil
            }
            result += piece
            rest = rest[next...]
        }
        size += result.count
        return result
    }
}
