import VaultCrypto

/// Returns the bytes of hexadecimal digit pairs. Spaces are ignored.
func bytes(hex text: String) -> [UInt8] {
    let digits = text.compactMap(\.hexDigitValue)
    return stride(from: 0, to: digits.count - 1, by: 2).map { UInt8(digits[$0] * 16 + digits[$0 + 1]) }
}

func hex(_ bytes: [UInt8]) -> String {
    let digits = Array("0123456789abcdef")
    return String(bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] })
}

func secret(_ bytes: [UInt8]) -> SecretBytes {
    bytes.withUnsafeBytes { SecretBytes(copying: $0) }
}

func secret(_ range: Range<Int>) -> SecretBytes {
    secret(range.map { UInt8($0) })
}

func content(_ secret: SecretBytes) -> [UInt8] {
    secret.withUnsafeBytes { Array($0) }
}

/// Returns text-like plaintext, different in each block and chunk. The reference values were computed over it.
func pattern(_ count: Int) -> [UInt8] {
    var bytes: [UInt8] = []
    while bytes.count < count { bytes += patternPeriod.prefix(count - bytes.count) }
    return bytes
}

/// Computed once, because unoptimized tests would otherwise spend most of their time on it.
private let patternPeriod = (0..<65536).map { UInt8(truncatingIfNeeded: $0 * 31 + ($0 >> 8) * 7) }
