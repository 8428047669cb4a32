internal import LinuxSystem
internal import VaultFormat

/// The values of a playlist's tags, from their digits.
enum PlaylistValues {
    /// A byte range without its resource: `n[@o]` (RFC 8216, 4.3.2.2).
    struct Bytes {
        var count: UInt64
        /// Nil: behind the range before.
        var offset: UInt64?

        /// Nil where it goes beyond what a file can have.
        func range(from implied: UInt64) -> Range<UInt64>? {
            let start = offset ?? implied
            let (end, overflow) = start.addingReportingOverflow(count)
            return overflow || end > UInt64(Int64.max) ? nil : start..<end
        }
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

    static func bytes(_ value: ArraySlice<UInt8>) -> Bytes? {
        guard let at = value.firstIndex(of: UInt8(ascii: "@")) else {
            return decimal(value).map { Bytes(count: $0, offset: nil) }
        }
        guard let count = decimal(value[..<at]), let offset = decimal(value[(at + 1)...]) else { return nil }
        return Bytes(count: count, offset: offset)
    }

    /// `0x` and up to 32 digits: a number, so fewer are its lower ones (RFC 8216, 4.2).
    static func vector(_ value: ArraySlice<UInt8>) -> InitialVector? {
        let digits = value.dropFirst(2)
        guard value.count == digits.count + 2, value[value.startIndex] == UInt8(ascii: "0"),
            value[value.startIndex + 1] | 0x20 == UInt8(ascii: "x"), (1...32).contains(digits.count)
        else { return nil }
        var vector = InitialVector.zero
        for digit in digits {
            guard let digit = Hexadecimal.value(of: digit) else { return nil }
            vector.high = vector.high << 4 | vector.low >> 60
            vector.low = vector.low << 4 | UInt64(digit)
        }
        return vector
    }
}
