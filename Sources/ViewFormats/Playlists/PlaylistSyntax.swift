/// The lines of a playlist. They end with LF or CRLF (RFC 8216, 4.1), or with a single CR, which players accept (ffmpeg's
/// `ff_get_line`): a line that they read as an `EXT-X-KEY` must be one here too.
struct PlaylistLines: IteratorProtocol {
    struct Line {
        /// Counted from 1.
        var number: Int
        /// Without the line end and the blanks before it, which players cut off.
        var content: Range<Int>
        /// With the line end.
        var whole: Range<Int>
    }

    private let text: [UInt8]
    private var position: Int
    private var number = 0

    /// - Parameter start: position behind a byte order mark.
    init(_ text: [UInt8], from start: Int) {
        self.text = text
        position = start
    }

    mutating func next() -> Line? {
        guard position < text.count else { return nil }
        let start = position
        var end = start
        while end < text.count, text[end] != UInt8(ascii: "\n"), text[end] != UInt8(ascii: "\r") { end += 1 }
        position = end
        if position < text.count { position += 1 }
        if position < text.count, text[position] == UInt8(ascii: "\n"), text[end] == UInt8(ascii: "\r") {
            position += 1
        }
        while end > start, isBlank(text[end - 1]) { end -= 1 }
        number += 1
        return Line(number: number, content: start..<end, whole: start..<position)
    }
}

private func isBlank(_ byte: UInt8) -> Bool { byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t") }

/// The attribute list of a tag: `NAME=VALUE,NAME="VALUE"` (RFC 8216, 4.2), as ranges of the playlist's text.
///
/// Allows blanks around names and values, as players do. The first of two attributes with one name counts.
struct PlaylistAttributes {
    private let text: [UInt8]
    /// Values without quotes.
    private var attributes: [(name: Range<Int>, value: Range<Int>)] = []

    /// Nil if a name has no value, or a quote is not closed.
    init?(_ text: [UInt8], in range: Range<Int>) {
        self.text = text
        var position = range.lowerBound
        while true {
            position = skipBlanks(position, range.upperBound)
            // A comma behind the last attribute is allowed.
            guard position < range.upperBound else { return }
            guard let equals = find(UInt8(ascii: "="), position, range.upperBound), equals > position,
                let (value, next) = value(from: equals + 1, to: range.upperBound)
            else { return nil }
            attributes.append((position..<equals, value))
            position = next
        }
    }

    subscript(name: StaticString) -> Range<Int>? {
        attributes.first {
            text[$0.name].elementsEqual(UnsafeBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount))
        }?
        .value
    }

    private func value(from start: Int, to end: Int) -> (range: Range<Int>, next: Int)? {
        let start = skipBlanks(start, end)
        if start < end, text[start] == UInt8(ascii: "\"") {
            guard let close = find(UInt8(ascii: "\""), start + 1, end) else { return nil }
            let next = skipBlanks(close + 1, end)
            guard next == end || text[next] == UInt8(ascii: ",") else { return nil }
            return (start + 1..<close, min(next + 1, end))
        }
        let comma = find(UInt8(ascii: ","), start, end) ?? end
        var last = comma
        while last > start, isBlank(text[last - 1]) { last -= 1 }
        return (start..<last, min(comma + 1, end))
    }

    private func skipBlanks(_ start: Int, _ end: Int) -> Int {
        text[start..<end].firstIndex { !isBlank($0) } ?? end
    }

    private func find(_ byte: UInt8, _ start: Int, _ end: Int) -> Int? {
        text[start..<end].firstIndex(of: byte)
    }
}

/// A byte range without its resource: `n[@o]` (RFC 8216, 4.3.2.2).
struct PlaylistByteRange {
    var count: UInt64
    /// Nil for the end of the range before.
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

    /// Nil if the range is beyond the maximum size of a file.
    func range(from implied: UInt64) -> Range<UInt64>? {
        let start = offset ?? implied
        let (end, overflow) = start.addingReportingOverflow(count)
        return overflow || end > UInt64(Int64.max) ? nil : start..<end
    }

    /// A decimal integer from 0 to 2^64 − 1, and nothing else.
    static func decimal(_ digits: ArraySlice<UInt8>) -> UInt64? {
        guard !digits.isEmpty else { return nil }
        var result: UInt64 = 0
        for digit in digits {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(digit) else { return nil }
            let (product, tooLarge) = result.multipliedReportingOverflow(by: 10)
            let (sum, overflow) = product.addingReportingOverflow(UInt64(digit - UInt8(ascii: "0")))
            guard !tooLarge, !overflow else { return nil }
            result = sum
        }
        return result
    }
}
