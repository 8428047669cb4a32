/// base64url without padding (RFC 4648 §5), canonical: unused bits are zero, so one value has one spelling.
package enum Base64URL {
    private static let alphabet: [UInt8] = Array(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)

    /// The value of each byte as a digit; 0xFF where it is none.
    private static let values: [UInt8] = {
        var table = [UInt8](repeating: 0xFF, count: 256)
        for (value, digit) in alphabet.enumerated() { table[Int(digit)] = UInt8(value) }
        return table
    }()

    /// How many digits `count` bytes take.
    package static func encodedCount(_ count: Int) -> Int { count / 3 * 4 + (count % 3 == 0 ? 0 : count % 3 + 1) }

    /// How many bytes `count` digits hold; meaningless for a count that no encoding has (4k + 1).
    package static func decodedCount(_ count: Int) -> Int { count / 4 * 3 + count % 4 * 3 / 4 }

    /// The digits of `bytes`.
    package static func encode(_ bytes: [UInt8]) -> [UInt8] { encode(bytes, after: []) }

    /// `prefix` followed by the digits of `bytes`, in one allocation.
    static func encode(_ bytes: [UInt8], after prefix: [UInt8]) -> [UInt8] {
        let count = prefix.count + encodedCount(bytes.count)
        return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            var next = 0
            func put(_ byte: UInt8) {
                buffer.initializeElement(at: next, to: byte)
                next += 1
            }
            prefix.forEach(put)
            var index = 0
            while index < bytes.count {
                let left = bytes.count - index
                let group =
                    UInt32(bytes[index]) << 16 | (left > 1 ? UInt32(bytes[index + 1]) << 8 : 0)
                    | (left > 2 ? UInt32(bytes[index + 2]) : 0)
                put(alphabet[Int(group >> 18)])
                put(alphabet[Int(group >> 12 & 63)])
                if left > 1 { put(alphabet[Int(group >> 6 & 63)]) }
                if left > 2 { put(alphabet[Int(group & 63)]) }
                index += 3
            }
            initialized = next
        }
    }

    /// The bytes that `text` spells, or nil where it is not exactly what `encode` writes for them.
    package static func decode(_ text: [UInt8]) -> [UInt8]? { decode(text[...]) }

    /// The bytes that `text` spells, or nil where it is not exactly what `encode` writes for them.
    static func decode(_ text: ArraySlice<UInt8>) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        var isCanonical = true
        let bytes = [UInt8](unsafeUninitializedCapacity: decodedCount(text.count)) { buffer, initialized in
            var pending: UInt32 = 0
            var pendingBits = 0
            var next = 0
            for digit in text {
                let value = values[Int(digit)]
                if value == 0xFF {
                    isCanonical = false
                    break
                }
                pending = pending << 6 | UInt32(value)
                pendingBits += 6
                if pendingBits >= 8 {
                    pendingBits -= 8
                    buffer.initializeElement(at: next, to: UInt8(truncatingIfNeeded: pending >> UInt32(pendingBits)))
                    next += 1
                    pending &= 1 << UInt32(pendingBits) - 1
                }
            }
            if pending != 0 { isCanonical = false }
            initialized = next
        }
        return isCanonical ? bytes : nil
    }
}
