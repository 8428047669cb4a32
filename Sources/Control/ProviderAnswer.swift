internal import FoundationEssentials
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
        let outcome = answer.withUnsafeBytes { line in
            Result { () throws(FormatError) in try parse(line) }
        }
        return try outcome.get()
    }

    private static func parse(_ line: UnsafeRawBufferPointer) throws(FormatError) -> ProviderAnswer {
        guard let text = SecretText(line: line),
            let fields = try? JSONDecoder().decode(Fields.self, from: Data(text.withoutSecret))
        else {
            throw FormatError(
                .malformed, "expected {\"secret\":{\"kind\":…,\"bytes\":…}} or {\"refused\":…}")
        }
        switch (fields.secret, fields.refused) {
        case (let secret?, nil): return .secret(try secret.secret(cutOutBy: text, of: line))
        case (nil, let reason?): return .refused(reason)
        default: throw FormatError(.malformed, "neither 'secret' nor 'refused', or both")
        }
    }
}
