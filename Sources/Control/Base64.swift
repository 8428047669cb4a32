/// Base64 with padding (RFC 4648, section 4), from memory to memory: a library's would leave copies of secrets behind.
enum Base64 {
    private static let digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)

    /// The value of each byte that is a digit, 255 for all others.
    private static let values: [UInt8] = {
        var values = [UInt8](repeating: 255, count: 256)
        for (value, digit) in digits.enumerated() { values[Int(digit)] = UInt8(value) }
        return values
    }()

    static func encodedSize(_ count: Int) -> Int { (count + 2) / 3 * 4 }

    /// Fills `target`, of `encodedSize` bytes.
    static func encode(_ source: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) {
        var written = 0
        for start in stride(from: 0, to: source.count, by: 3) {
            let bytes = source[start..<min(start + 3, source.count)]
            let group = bytes.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - bytes.count))
            for place in 0..<4 {
                let digit = digits[Int(group >> UInt32(18 - 6 * place) & 63)]
                target[written + place] = place <= bytes.count ? digit : UInt8(ascii: "=")
            }
            written += 4
        }
    }

    /// How many bytes the text of a JSON string stands for; nil where its length or padding is wrong.
    static func decodedSize(_ text: UnsafeRawBufferPointer) -> Int? {
        // JSON may write / as \/, which many encoders do.
        let count = text.count - text.count { $0 == UInt8(ascii: "\\") }
        guard count % 4 == 0 else { return nil }
        let padding = text.suffix(2).count { $0 == UInt8(ascii: "=") }
        return count / 4 * 3 - padding
    }

    /// Fills `target`, of `decodedSize` bytes. False where the text is no base64.
    static func decode(_ text: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) -> Bool {
        var group: UInt32 = 0
        var bits = 0
        var written = 0
        var padding = 0
        for (index, byte) in text.enumerated() {
            if byte == UInt8(ascii: "\\") {
                guard index + 1 < text.count, text[index + 1] == UInt8(ascii: "/") else { return false }
                continue
            }
            if byte == UInt8(ascii: "=") {
                padding += 1
                continue
            }
            let value = values[Int(byte)]
            guard value != 255, padding == 0 else { return false }
            group = (group << 6 | UInt32(value)) & 0xFFFFFF
            bits += 6
            if bits >= 8 {
                bits -= 8
                guard written < target.count else { return false }
                target[written] = UInt8(truncatingIfNeeded: group >> UInt32(bits))
                written += 1
            }
        }
        // What is left over must be nothing: one text for one secret.
        return padding <= 2 && written == target.count && group & (1 << UInt32(bits) - 1) == 0
    }
}
