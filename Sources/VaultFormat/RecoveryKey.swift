internal import LinuxSystem
package import VaultCrypto

/// A recovery key as people keep it (FileFormat, Secrets): 64 hexadecimal digits in groups of 8 joined by `-`, and a
/// last group of 8 check digits, the start of the SHA-256 of the 32 bytes.
package enum RecoveryKey {
    /// Bytes of the key itself.
    package static let size = 32
    private static let checkSize = 4

    /// The key's text: 9 groups, lower case. `key` has 32 bytes.
    package static func text(_ key: SecretBytes) -> String {
        let bytes = key.withUnsafeBytes { Array($0) }
        // Fails only without memory. Swift traps then too.
        guard let check = try? checkBytes(of: bytes) else { preconditionFailure("internal error: no SHA-256") }
        let digits = Hexadecimal.encode(bytes + check)
        var groups: [Substring] = []
        var rest = digits[...]
        while !rest.isEmpty {
            groups.append(rest.prefix(8))
            rest = rest.dropFirst(8)
        }
        return groups.joined(separator: "-")
    }

    /// Reads typed text. Case, `-` and white space do not matter. Throws `malformed`, which reports if the digits are
    /// wrong in number or kind, or the check digits disagree.
    package static func parse(_ text: [UInt8]) throws(FormatError) -> SecretBytes {
        var digits: [UInt8] = []
        for byte in text where !isSeparator(byte) {
            guard let value = Hexadecimal.value(of: byte) else {
                throw FormatError(.malformed, "recovery key: something is not a hexadecimal digit")
            }
            digits.append(value)
        }
        let expectedCount = 2 * (size + checkSize)
        guard digits.count == expectedCount else {
            throw FormatError(.malformed, "recovery key: \(digits.count) digits instead of \(expectedCount)")
        }
        let bytes = stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
        let key = Array(bytes[..<size])
        guard try checkBytes(of: key) == Array(bytes[size...]) else {
            throw FormatError(.malformed, "recovery key: the check digits disagree, so some digit is wrong")
        }
        return key.withUnsafeBytes { SecretBytes(copying: $0) }
    }

    private static func isSeparator(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "-") || byte == UInt8(ascii: " ") || (0x09...0x0D).contains(byte)
    }

    private static func checkBytes(of key: [UInt8]) throws(FormatError) -> [UInt8] {
        let digest = try cryptography("recovery key") { () throws(CryptoError) in try Sha256.digest(key) }
        return Array(digest.prefix(checkSize))
    }
}
