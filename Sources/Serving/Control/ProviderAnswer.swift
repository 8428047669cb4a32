internal import LinuxSystem

/// A key provider's answer: `{"secret":{"kind":…,"bytes":…}}` or `{"refused":"why"}` (KeyProvider).
package enum ProviderAnswer {
    case secret(ClientSecret)
    /// The provider's reason, any text.
    case refused(String)

    private struct Fields: Decodable {
        let secret: SecretField?
        let refused: String?
    }

    /// Returns nil for anything else.
    package static func parse(_ answer: [UInt8]) -> ProviderAnswer? {
        answer.withBytes { line in
            guard let text = SecretText(line: line), let fields = text.decode(Fields.self) else { return nil }
            return switch (fields.secret, fields.refused) {
            case (let secret?, nil): secret.secret(in: text).map { .secret($0) }
            case (nil, let reason?): .refused(reason)
            default: nil
            }
        }
    }
}
