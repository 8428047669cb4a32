/// Base64 (RFC 4648), from memory to memory, because a library's encoder could leave copies of secrets behind.
///
/// `decode` accepts only the output of `encode`, so a value has one spelling.
package struct Base64: Sendable {
    /// RFC 4648 §4, with padding.
    package static let standard = Base64(lastDigits: "+/", isPadded: true)
    /// RFC 4648 §5, without padding.
    package static let url = Base64(lastDigits: "-_", isPadded: false)

    private let digits: [UInt8]
    /// The value of each byte as a digit. 0xFF for all other bytes.
    private let values: [UInt8]
    private let isPadded: Bool

    private init(lastDigits: String, isPadded: Bool) {
        digits = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789\(lastDigits)".utf8)
        var values = [UInt8](repeating: 0xFF, count: 256)
        for (value, digit) in digits.enumerated() { values[Int(digit)] = UInt8(value) }
        self.values = values
        self.isPadded = isPadded
    }

    package func isDigit(_ character: UInt8) -> Bool { values[Int(character)] != 0xFF }

    /// Returns the number of digits at the beginning of `bytes`.
    package func digitCount(atStartOf bytes: [UInt8]) -> Int {
        values.withUnsafeBufferPointer { values in bytes.firstIndex { values[Int($0)] == 0xFF } ?? bytes.count }
    }

    /// Returns the number of characters in the encoding of `count` bytes.
    package func encodedCount(_ count: Int) -> Int { isPadded ? (count + 2) / 3 * 4 : (count * 4 + 2) / 3 }

    /// Returns the number of bytes encoded by `count` digits (without padding). Meaningless for the impossible count of
    /// 4k + 1 digits.
    package func decodedCount(_ count: Int) -> Int { count / 4 * 3 + count % 4 * 3 / 4 }

    /// Fills `target`, of `encodedCount` bytes.
    package func encode(_ source: UnsafeRawBufferPointer, into target: UnsafeMutableRawBufferPointer) {
        var next = 0
        for start in stride(from: 0, to: source.count, by: 3) {
            let count = min(3, source.count - start)
            var group: UInt32 = 0
            for index in 0..<3 { group = group << 8 | (index < count ? UInt32(source[start + index]) : 0) }
            for position in 0...count {
                target[next] = digits[Int(group >> UInt32(18 - 6 * position) & 63)]
                next += 1
            }
        }
        while next < target.count {
            target[next] = UInt8(ascii: "=")
            next += 1
        }
    }

    /// Fills `target`. Returns false unless `digits`, without padding, encode exactly its number of bytes.
    package func decode(_ digits: some Sequence<UInt8>, into target: UnsafeMutableRawBufferPointer) -> Bool {
        var (group, bits): (UInt32, UInt32) = (0, 0)
        var next = 0
        for digit in digits {
            let value = values[Int(digit)]
            guard value != 0xFF else { return false }
            group = group << 6 | UInt32(value)
            bits += 6
            guard bits >= 8 else { continue }
            bits -= 8
            guard next < target.count else { return false }
            target[next] = UInt8(truncatingIfNeeded: group >> bits)
            next += 1
            group &= 1 << bits - 1
        }
        // The remaining bits must be zero, and fewer than a digit.
        return next == target.count && group == 0 && bits < 6
    }

    /// Returns `prefix` followed by the encoded `bytes`, in one allocation.
    package func encode(_ bytes: [UInt8], after prefix: [UInt8] = []) -> [UInt8] {
        let count = prefix.count + encodedCount(bytes.count)
        return [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            let target = UnsafeMutableRawBufferPointer(buffer)
            target.copyBytes(from: prefix)
            bytes.withUnsafeBytes { encode($0, into: UnsafeMutableRawBufferPointer(rebasing: target[prefix.count...])) }
            initialized = count
        }
    }

    /// Returns the bytes encoded by digits without padding. Nil unless they are exactly the output of `encode`.
    package func decode(_ digits: [UInt8]) -> [UInt8]? { decode(digits[...]) }

    /// Returns the bytes encoded by digits without padding. Nil unless they are exactly the output of `encode`.
    package func decode(_ digits: ArraySlice<UInt8>) -> [UInt8]? {
        let count = decodedCount(digits.count)
        var isValid = false
        let bytes = [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
            isValid = decode(digits, into: UnsafeMutableRawBufferPointer(buffer))
            initialized = isValid ? count : 0
        }
        return isValid ? bytes : nil
    }
}
