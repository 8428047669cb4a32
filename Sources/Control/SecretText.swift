/// JSON text with a secret's bytes cut out of it before a decoder, which copies freely, sees the rest.
struct SecretText {
    /// The text without the secret: an empty string is in its place.
    let withoutSecret: [UInt8]
    /// Where in the line the strings lie that are the value of a field `bytes`, without their quotes.
    let secrets: [Range<Int>]

    /// Nil where a string does not end.
    init?(line: UnsafeRawBufferPointer) {
        var ranges: [Range<Int>] = []
        // The last string, and whether a colon came after it.
        var name: Range<Int>?
        var isValue = false
        var position = 0
        while position < line.count {
            switch line[position] {
            case UInt8(ascii: "\""):
                guard let end = Self.endOfString(line, from: position + 1) else { return nil }
                let string = (position + 1)..<end
                if isValue, let name, line[name].elementsEqual("bytes".utf8) { ranges.append(string) }
                name = isValue ? nil : string
                isValue = false
                position = end
            case UInt8(ascii: ":"): isValue = true
            case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\r"), UInt8(ascii: "\n"): break
            default: (name, isValue) = (nil, false)
            }
            position += 1
        }
        secrets = ranges
        var rest: [UInt8] = []
        var start = 0
        for range in ranges {
            rest += line[start..<range.lowerBound]
            start = range.upperBound
        }
        withoutSecret = rest + line[start...]
    }

    /// The index of the closing quote.
    private static func endOfString(_ line: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var position = start
        while position < line.count {
            switch line[position] {
            case UInt8(ascii: "\""): return position
            case UInt8(ascii: "\\"): position += 2
            default: position += 1
            }
        }
        return nil
    }
}
