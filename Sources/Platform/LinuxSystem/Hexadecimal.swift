package enum Hexadecimal {
    private static let digits: [UInt8] = Array("0123456789abcdef".utf8)

    /// Returns two lower-case digits for each byte.
    package static func encode(_ bytes: some Collection<UInt8>) -> String {
        String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    /// Returns the number's 16 lower-case digits.
    package static func encode(_ number: UInt64) -> String { withUnsafeBytes(of: number.bigEndian) { encode($0) } }

    /// Returns the bytes spelled by pairs of digits in either case, or nil.
    package static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        let values = text.compactMap(value)
        guard values.count == text.count, values.count % 2 == 0 else { return nil }
        return stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }

    /// Returns the digits after `0x` or `0X`. Nil without such a prefix.
    package static func withoutPrefix<Text: Collection<UInt8>>(_ text: Text) -> Text.SubSequence? {
        text.starts(with: "0x".utf8) || text.starts(with: "0X".utf8) ? text.dropFirst(2) : nil
    }

    /// Returns the value of one digit in either case, or nil.
    package static func value(of digit: UInt8) -> UInt8? {
        switch digit {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): digit - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
