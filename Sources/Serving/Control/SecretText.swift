internal import FoundationEssentials
internal import LinuxSystem
internal import VaultCrypto

/// A line of JSON without the secret's bytes. They are cut out before the text reaches the decoder, which copies
/// freely. Valid as long as the line.
struct SecretText {
    fileprivate let line: UnsafeRawBufferPointer
    /// The text with an empty string in place of the secret.
    private(set) var withoutSecret: [UInt8] = []
    /// The positions in the line of the values of all fields named `bytes`, without their quotes.
    fileprivate private(set) var secrets: [Range<Int>] = []

    /// Returns nil if a string in the line does not end.
    init?(line: UnsafeRawBufferPointer) {
        self.line = line
        var position = 0
        // True if the last string was the name `bytes`.
        var isNamed = false
        while let quote = line[position...].firstIndex(of: UInt8(ascii: "\"")) {
            let between = line[position..<quote].lazy.filter { !" \t\r\n".utf8.contains($0) }
            let isSecret = isNamed && between.elementsEqual(":".utf8)
            var end = quote + 1
            while end < line.count, line[end] != UInt8(ascii: "\"") { end += line[end] == UInt8(ascii: "\\") ? 2 : 1 }
            guard end < line.count else { return nil }
            let string = (quote + 1)..<end
            withoutSecret += line[position...quote]
            if isSecret { secrets.append(string) } else { withoutSecret += line[string] }
            withoutSecret.append(line[end])
            isNamed = !isSecret && line[string].elementsEqual("bytes".utf8)
            position = end + 1
        }
        withoutSecret += line[position...]
    }

    func decode<Fields: Decodable>(_ type: Fields.Type) -> Fields? {
        try? JSONDecoder().decode(type, from: Data(withoutSecret))
    }
}

/// A secret without its bytes, in the form seen by the decoder: `{"kind":"passphrase","bytes":""}`.
struct SecretField: Decodable {
    let kind, bytes: String

    /// Returns the secret, with its bytes decoded from `text`. Nil if they are not base64.
    func secret(in text: SecretText) -> ClientSecret? {
        // `SecretText` does not recognise a name written with escapes, so check that it has cut out exactly one value.
        guard text.secrets.count == 1, bytes.isEmpty,
            let decoded = try? Self.decoded(text.line.slice(text.secrets[0]))
        else { return nil }
        return ClientSecret(kind: kind, bytes: decoded)
    }

    /// Decodes padded base64 in a JSON string, which may write `/` as `\/`. Other escapes are refused.
    private static func decoded(_ text: UnsafeRawBufferPointer) throws(CryptoError) -> SecretBytes {
        let (slash, backslash) = (UInt8(ascii: "/"), UInt8(ascii: "\\"))
        let padding = text.suffix(2).count { $0 == UInt8(ascii: "=") }
        let spelled = text.dropLast(padding)
        let escapes = spelled.count { $0 == backslash }
        let count = spelled.count - escapes
        let isSlash =
            escapes == 0
            || spelled.last != backslash
                && zip(spelled, spelled.dropFirst()).allSatisfy { $0 != backslash || $1 == slash }
        return try SecretBytes(count: Base64.standard.decodedCount(count)) { (target) throws(CryptoError) in
            guard isSlash, (count + padding) % 4 == 0,
                Base64.standard.decode(spelled.lazy.filter { $0 != backslash }, into: target)
            else { throw .invalidInput("not base64") }
        }
    }
}
