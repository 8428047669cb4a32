/// The lines of a playlist, in order. They end with LF or CRLF (RFC 8216, 4.1), and with a CR alone, since players take
/// that for an end too (ffmpeg's `ff_get_line`): what they see as an `EXT-X-KEY` has to be one here.
struct PlaylistLines: IteratorProtocol {
    struct Line {
        /// Counted from 1.
        var number: Int
        /// Without the end, and without the blanks before it, which players cut off.
        var content: Range<Int>
        /// With the end.
        var whole: Range<Int>
    }

    private let text: [UInt8]
    private var position: Int
    private var number = 0

    /// - Parameter start: where the first line begins, behind a byte order mark.
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
        while end > start, text[end - 1] == UInt8(ascii: " ") || text[end - 1] == UInt8(ascii: "\t") { end -= 1 }
        number += 1
        return Line(number: number, content: start..<end, whole: start..<position)
    }
}
