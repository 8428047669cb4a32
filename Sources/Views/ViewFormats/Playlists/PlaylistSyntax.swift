/// The lines of a playlist. They end with LF or CRLF (RFC 8216, 4.1), or with a single CR, because players accept it
/// (ffmpeg's `ff_get_line`), and a line read by them as an `EXT-X-KEY` must be one here too.
struct PlaylistLines: IteratorProtocol {
    struct Line {
        /// Counted from 1.
        var number: Int
        /// The line without its end, and without the blanks before that, which players cut off.
        var content: ArraySlice<UInt8>
        /// The line's position in the text, with the line end.
        var whole: Range<Int>
    }

    private var rest: ArraySlice<UInt8>
    private var number = 0

    /// - Parameter text: without a byte order mark.
    init(_ text: ArraySlice<UInt8>) { rest = text }

    mutating func next() -> Line? {
        guard !rest.isEmpty else { return nil }
        let content = rest.prefix { $0 != UInt8(ascii: "\n") && $0 != UInt8(ascii: "\r") }
        rest = rest[content.endIndex...]
        rest = rest.dropFirst(rest.starts(with: "\r\n".utf8) ? 2 : 1)
        number += 1
        return Line(
            number: number, content: withoutTrailingBlanks(content), whole: content.startIndex..<rest.startIndex)
    }
}

private func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }

func withoutBlanks(_ text: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    withoutTrailingBlanks(text.drop(while: isBlank))
}

private func withoutTrailingBlanks(_ text: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    text[...(text.lastIndex { !isBlank($0) } ?? text.startIndex - 1)]
}

/// The attribute list of a tag: `NAME=VALUE,NAME="VALUE"` (RFC 8216, 4.2), as slices of the playlist's text.
///
/// Allows blanks around names and values, as players do. A name can occur only once (RFC 8216, 4.2): of two attributes
/// with one name, some players take the first, and others the last.
struct PlaylistAttributes {
    /// Values without quotes.
    private var attributes: [(name: ArraySlice<UInt8>, value: ArraySlice<UInt8>)] = []

    /// Maximum number of attributes of a tag. EXT-X-STREAM-INF and EXT-X-DATERANGE have the most, with some twenty.
    private static let maximumCount = 1024

    /// Parses a list; nil if a name has no value or occurs twice, a quote is not closed, or there are too many.
    init?(_ list: ArraySlice<UInt8>) {
        var names: Set<ArraySlice<UInt8>> = []
        var rest = list.drop(while: isBlank)
        // Allow a comma after the last attribute.
        while !rest.isEmpty {
            guard let equals = rest.firstIndex(of: UInt8(ascii: "=")), equals > rest.startIndex else { return nil }
            let name = rest[..<equals]
            rest = rest[(equals + 1)...].drop(while: isBlank)
            let value: ArraySlice<UInt8>
            if rest.first == UInt8(ascii: "\"") {
                rest = rest.dropFirst()
                guard let close = rest.firstIndex(of: UInt8(ascii: "\"")) else { return nil }
                value = rest[..<close]
                rest = rest[(close + 1)...].drop(while: isBlank)
                guard rest.isEmpty || rest.first == UInt8(ascii: ",") else { return nil }
            } else {
                let end = rest.firstIndex(of: UInt8(ascii: ",")) ?? rest.endIndex
                value = withoutTrailingBlanks(rest[..<end])
                rest = rest[end...]
            }
            guard attributes.count < Self.maximumCount, names.insert(withoutBlanks(name)).inserted else { return nil }
            attributes.append((name, value))
            rest = rest.dropFirst().drop(while: isBlank)
        }
    }

    /// Returns the values of all attributes with names that end with `suffix`, in order.
    func values(withSuffix suffix: String) -> [ArraySlice<UInt8>] {
        attributes.filter { $0.name.suffix(suffix.utf8.count).elementsEqual(suffix.utf8) }.map(\.value)
    }

    /// Returns true if the text has a name that ends with `suffix`, even if it is not an attribute list.
    static func mayName(_ suffix: String, in text: ArraySlice<UInt8>) -> Bool {
        let wanted = Array((suffix + "=").utf8)
        var rest = text
        while let position = rest.firstIndex(of: wanted[wanted.count - 1]) {
            if rest[...position].suffix(wanted.count).elementsEqual(wanted) { return true }
            rest = rest[(position + 1)...]
        }
        return false
    }

    /// Returns the parts of a tag's value that may be URIs: the whole value, its parts between quotes, their pieces
    /// between blanks and commas, and of each what begins or ends at an equals sign, which may stand before a URI or in
    /// its query. All have a `.` or a `/`, unlike numbers and words. Nil if there are too many.
    static func tokens(of value: ArraySlice<UInt8>) -> [ArraySlice<UInt8>]? {
        let value = withoutBlanks(value)
        let isMark = { (byte: UInt8) in "./".utf8.contains(byte) }
        var tokens = [value]
        let parts = value.split(separator: UInt8(ascii: "\""), maxSplits: maximumCount)
        guard parts.count <= maximumCount else { return nil }
        for part in parts {
            let pieces = part.split(maxSplits: maximumCount) { " \t,".utf8.contains($0) }
            guard pieces.count <= maximumCount else { return nil }
            for piece in [part] + pieces {
                // Search for the last mark once, because a hostile value can have millions of equals signs.
                guard let lastMark = piece.lastIndex(where: isMark) else { continue }
                var rest = piece
                while rest.startIndex <= lastMark {
                    let first = rest.prefix { $0 != UInt8(ascii: "=") }
                    if rest != value { tokens.append(rest) }
                    if first.endIndex < rest.endIndex, first.contains(where: isMark) { tokens.append(first) }
                    guard tokens.count <= maximumCount else { return nil }
                    rest = rest[first.endIndex...].dropFirst()
                }
            }
        }
        return tokens
    }

    subscript(name: String) -> ArraySlice<UInt8>? { attributes.first { $0.name.elementsEqual(name.utf8) }?.value }
}

/// A byte range without its resource: `n[@o]` (RFC 8216, 4.3.2.2).
struct PlaylistByteRange {
    var count: UInt64
    /// Nil to begin at the end of the previous range.
    var offset: UInt64?

    init?(_ value: ArraySlice<UInt8>) {
        let parts = value.split(separator: UInt8(ascii: "@"), maxSplits: 1, omittingEmptySubsequences: false)
        guard let count = Self.decimal(parts[0]) else { return nil }
        self.count = count
        if parts.count > 1 {
            guard let offset = Self.decimal(parts[1]) else { return nil }
            self.offset = offset
        }
    }

    /// Returns the range, or nil if it passes the maximum size of a file.
    func range(from implied: UInt64) -> Range<UInt64>? {
        let start = offset ?? implied
        let (end, overflow) = start.addingReportingOverflow(count)
        return overflow || end > UInt64(Int64.max) ? nil : start..<end
    }

    /// Parses a decimal integer from 0 to 2^64 − 1, and nothing else.
    static func decimal(_ digits: ArraySlice<UInt8>) -> UInt64? {
        guard digits.allSatisfy((UInt8(ascii: "0")...UInt8(ascii: "9")).contains) else { return nil }
        return UInt64(String(decoding: digits, as: UTF8.self))
    }
}
