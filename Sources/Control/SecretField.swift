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
            guard let size = Base64.decodedSize(encoded) else { throw .invalidInput("no base64") }
            decoded = try SecretBytes(count: size) { (target) throws(CryptoError) in
                guard Base64.decode(encoded, into: target) else { throw .invalidInput("no base64") }
            }
        } catch {
            throw FormatError(.malformed, "a secret's bytes are base64")
        }
        return try SlotSecret(kind: kind, bytes: decoded)
    }
}
