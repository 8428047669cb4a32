/// The attribute list of a tag: `NAME=VALUE,NAME="VALUE"` (RFC 8216, 4.2). All are ranges of the playlist's text.
///
/// Blanks around names and values are let pass, as players do; the first of two attributes of one name counts.
struct PlaylistAttributes {
    private struct Attribute {
        var name: Range<Int>
        /// Without quotes.
        var value: Range<Int>
    }

    private let text: [UInt8]
    private var attributes: [Attribute] = []

    /// Nil where it is no attribute list: a name without a value, a quote that is not closed.
    init?(_ text: [UInt8], in range: Range<Int>) {
        self.text = text
        var position = range.lowerBound
        while true {
            position = skipBlanks(position, range.upperBound)
            // A comma behind the last attribute means nothing.
            guard position < range.upperBound else { return }
            guard let equals = find(UInt8(ascii: "="), position, range.upperBound), equals > position,
                let value = value(from: equals + 1, to: range.upperBound)
            else { return nil }
            attributes.append(Attribute(name: position..<equals, value: value.range))
            position = value.next
        }
    }

    /// Where the value of `name` is, or nil.
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
        while last > start, text[last - 1] == UInt8(ascii: " ") || text[last - 1] == UInt8(ascii: "\t") { last -= 1 }
        return (start..<last, min(comma + 1, end))
    }

    private func skipBlanks(_ start: Int, _ end: Int) -> Int {
        var position = start
        while position < end, text[position] == UInt8(ascii: " ") || text[position] == UInt8(ascii: "\t") {
            position += 1
        }
        return position
    }

    private func find(_ byte: UInt8, _ start: Int, _ end: Int) -> Int? {
        text[start..<end].firstIndex(of: byte)
    }
}
