internal import LinuxSystem
package import VaultFormat

/// A key provider's answer: `{"secret":{"kind":…,"bytes":…}}` or `{"refused":"why"}` (KeyProvider).
package enum ProviderAnswer {
    case secret(SlotSecret)
    /// The provider's reason, any text.
    case refused(String)

    private struct Fields: Decodable {
        let secret: SecretField?
        let refused: String?
    }

    /// - Throws: `malformed`, `invalidValue`. The message quotes nothing.
    package static func parse(_ answer: [UInt8]) throws(FormatError) -> ProviderAnswer {
        try answer.withBytes { (line) throws(FormatError) in
            guard let text = SecretText(line: line), let fields = text.decode(Fields.self) else {
                throw FormatError(.malformed, "expected {\"secret\":{\"kind\":…,\"bytes\":…}} or {\"refused\":…}")
            }
            switch (fields.secret, fields.refused) {
            case (let secret?, nil): return .secret(try secret.secret(in: text))
            case (nil, let reason?): return .refused(reason)
            default: throw FormatError(.malformed, "neither 'secret' nor 'refused', or both")
            }
        }
    }
}
