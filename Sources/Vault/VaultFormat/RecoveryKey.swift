internal import LinuxSystem
package import VaultCrypto

/// A recovery key as people keep it (FileFormat, Secrets): 64 hexadecimal digits in groups of 8 joined by `-`, and a
/// last group of 8 check digits from the start of the 32 bytes' SHA-256.
package enum RecoveryKey {
    package static let size = 32
    private static let checkSize = 4
    private static let expectedCount = 2 * (size + checkSize)
    private static let separators = Array("- \t\n\u{B}\u{C}\r".utf8)
    private static let form = "9 groups of 8 hexadecimal digits, such as 0123abcd-…"

    /// Returns the key's text: 9 groups, lower case. `key` has 32 bytes.
    package static func text(_ key: SecretBytes) -> String {
        let bytes = key.withUnsafeBytes { Array($0) }
        // Fails only if memory is exhausted, and then Swift traps too.
        guard let check = try? checkBytes(of: bytes) else { preconditionFailure("internal error: no SHA-256") }
        return stride(from: 0, to: size + checkSize, by: 4).map { Hexadecimal.encode((bytes + check)[$0..<$0 + 4]) }
            .joined(separator: "-")
    }

    /// Reads typed text, ignoring case, `-` and white space. Throws `malformed` with the reason: digits wrong in number
    /// or kind, or check digits that disagree.
    package static func parse(_ text: [UInt8]) throws(FormatError) -> SecretBytes {
        let digits = text.filter { !separators.contains($0) }
        try require(
            digits.allSatisfy({ Hexadecimal.value(of: $0) != nil }), .malformed,
            "recovery key: not \(form)")
        guard digits.count == expectedCount, let bytes = Hexadecimal.decode(digits) else {
            throw FormatError(.malformed, "recovery key: \(digits.count) digits instead of \(expectedCount): \(form)")
        }
        let key = Array(bytes[..<size])
        try require(
            try checkBytes(of: key) == Array(bytes[size...]), .malformed,
            "recovery key: the check digits disagree, so some digit is wrong")
        return key.withUnsafeBytes { SecretBytes(copying: $0) }
    }

    private static func checkBytes(of key: [UInt8]) throws(FormatError) -> [UInt8] {
        Array(try cryptography("recovery key", Sha256.digest(key)).prefix(checkSize))
    }
}
