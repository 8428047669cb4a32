internal import LinuxSystem
internal import VaultCrypto
internal import VaultFormat

/// JSON text without the secret's bytes. They are cut out before the decoder, which copies freely, sees the text.
struct SecretText {
    /// The text with an empty string in place of the secret.
    let withoutSecret: [UInt8]
    /// The positions in the line of the values of fields named `bytes`, without their quotes.
    let secrets: [Range<Int>]

    /// Nil if a string does not end.
    init?(line: UnsafeRawBufferPointer) {
        var ranges: [Range<Int>] = []
        // The last string, and true once a colon has followed it.
        var name: Range<Int>?
        var isValue = false
        var position = 0
        while position < line.count {
            switch line[position] {
            case UInt8(ascii: "\""):
                guard let end = Self.endOfString(line, from: position + 1) else { return nil }
                let string = (position + 1)..<end
                if isValue, let name, line[name].elementsEqual("bytes".utf8) { ranges.append(string) }
                name = isValue ? nil : string
                isValue = false
                position = end
            case UInt8(ascii: ":"): isValue = true
            case UInt8(ascii: " "), UInt8(ascii: "\t"), UInt8(ascii: "\r"), UInt8(ascii: "\n"): break
            default: (name, isValue) = (nil, false)
            }
            position += 1
        }
        secrets = ranges
        var rest: [UInt8] = []
        var start = 0
        for range in ranges {
            rest += line[start..<range.lowerBound]
            start = range.upperBound
        }
        withoutSecret = rest + line[start...]
    }

    /// The index of the closing quote.
    private static func endOfString(_ line: UnsafeRawBufferPointer, from start: Int) -> Int? {
        var position = start
        while position < line.count {
            switch line[position] {
            case UInt8(ascii: "\""): return position
            case UInt8(ascii: "\\"): position += 2
            default: position += 1
            }
        }
        return nil
    }
}

/// A slot's secret as the decoder sees it, without its bytes: `{"kind":"passphrase","bytes":""}`.
struct SecretField: Decodable {
    let kind: String
    let bytes: String

    /// Returns the secret, with its bytes decoded from `line`.
    /// - Throws: `malformed`. The message quotes nothing.
    func secret(cutOutBy text: SecretText, of line: UnsafeRawBufferPointer) throws(FormatError) -> SlotSecret {
        guard let kind = SlotKind(rawValue: kind) else {
            throw FormatError(.malformed, "a secret's kind is passphrase, keyfile or recovery")
        }
        // `SecretText` does not recognise a name that is written with escapes.
        guard text.secrets.count == 1, bytes.isEmpty else {
            throw FormatError(.malformed, "a secret has one field 'bytes'")
        }
        let encoded = UnsafeRawBufferPointer(rebasing: line[text.secrets[0]])
        let decoded: SecretBytes
        do throws(CryptoError) {
            guard let (digits, count) = Self.digits(encoded) else { throw .invalidInput("not base64") }
            let size = Base64.standard.decodedCount(count)
            decoded = try SecretBytes(count: size) { (target) throws(CryptoError) in
                guard Base64.standard.decode(digits, into: target) else { throw .invalidInput("not base64") }
            }
        } catch {
            throw FormatError(.malformed, "a secret's bytes are base64")
        }
        return try SlotSecret(kind: kind, bytes: decoded)
    }
    /// The digits of padded base64 in a JSON string, which may spell `/` as `\/`, and their number. Nil if something else
    /// is escaped, or the length or padding is wrong.
    private static func digits(
        _ text: UnsafeRawBufferPointer
    ) -> (LazyFilterSequence<Slice<UnsafeRawBufferPointer>>, count: Int)? {
        let backslash = UInt8(ascii: "\\")
        let padding = text.suffix(2).count { $0 == UInt8(ascii: "=") }
        let digits = text.dropLast(padding)
        var escapes = 0
        for index in digits.indices where digits[index] == backslash {
            guard index + 1 < digits.endIndex, digits[index + 1] == UInt8(ascii: "/") else { return nil }
            escapes += 1
        }
        guard (text.count - escapes) % 4 == 0 else { return nil }
        return (digits.lazy.filter { $0 != backslash }, digits.count - escapes)
    }
}
