internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// A slot's secret in JSON, `{"kind":"passphrase","bytes":"<base64>"}`, as a decoder sees it: without its bytes.
struct SecretField: Decodable {
    let kind: String
    let bytes: String

    /// The secret, its bytes taken from where they lie in `line`. Throws `malformed`, in words that quote nothing.
    func secret(cutOutBy text: SecretText, of line: UnsafeRawBufferPointer) throws(FormatError) -> SlotSecret {
        guard let kind = SlotKind(rawValue: kind) else {
            throw FormatError(.malformed, "a secret's kind is passphrase, keyfile or recovery")
        }
        // A name spelled with escapes would have gone by us.
        guard text.secrets.count == 1, bytes.isEmpty else {
            throw FormatError(.malformed, "a secret has one field 'bytes'")
        }
        let encoded = UnsafeRawBufferPointer(rebasing: line[text.secrets[0]])
        let decoded: SecretBytes
        do throws(CryptoError) {
            guard let digits = Self.digits(encoded) else { throw .invalidInput("not base64") }
            let size = Base64.standard.decodedCount(digits.reduce(0) { count, _ in count + 1 })
            decoded = try SecretBytes(count: size) { (target) throws(CryptoError) in
                guard Base64.standard.decode(digits, into: target) else { throw .invalidInput("not base64") }
            }
        } catch {
            throw FormatError(.malformed, "a secret's bytes are base64")
        }
        return try SlotSecret(kind: kind, bytes: decoded)
    }

    /// The digits of padded base64 in a JSON string, which may spell `/` as `\/`. Nil if something else is escaped, or the
    /// length or padding is wrong.
    private static func digits(_ text: UnsafeRawBufferPointer) -> LazyFilterSequence<Slice<UnsafeRawBufferPointer>>? {
        let backslash = UInt8(ascii: "\\")
        let padding = text.suffix(2).count { $0 == UInt8(ascii: "=") }
        let digits = text.dropLast(padding)
        let escapes = digits.indices.filter { digits[$0] == backslash }
        guard (text.count - escapes.count) % 4 == 0,
            escapes.allSatisfy({ $0 + 1 < digits.endIndex && digits[$0 + 1] == UInt8(ascii: "/") })
        else { return nil }
        return digits.lazy.filter { $0 != backslash }
    }
}
