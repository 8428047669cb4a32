package import VaultCrypto

/// The secret with which a person or a machine opens a slot (FileFormat, Secrets).
package struct SlotSecret: Sendable {
    /// The smallest keyfile, in bytes.
    package static let minimumKeyfileSize = 32

    package let kind: SlotKind
    /// The passphrase (less one trailing LF), the bytes of the keyfile, or the 32 bytes of the recovery key.
    package let bytes: SecretBytes

    /// Makes a secret from bytes already in the slot's form. Throws `invalidValue` for an empty passphrase, a keyfile
    /// under 32 bytes, a recovery key of another size.
    package init(kind: SlotKind, bytes: SecretBytes) throws(FormatError) {
        switch kind {
        case .passphrase: try require(bytes.count > 0, .invalidValue, "the passphrase is empty")
        case .keyfile:
            try require(
                bytes.count >= Self.minimumKeyfileSize, .invalidValue,
                "a keyfile of \(bytes.count) bytes is too short: at least \(Self.minimumKeyfileSize)")
        case .recovery:
            try require(bytes.count == RecoveryKey.size, .invalidValue, "recovery key of \(bytes.count) bytes")
        }
        self.kind = kind
        self.bytes = bytes
    }

    /// Makes a secret from a typed or stored passphrase. Removes one trailing LF and normalises nothing.
    /// - Throws: `invalidValue` for an empty one.
    package static func passphrase(_ text: [UInt8]) throws(FormatError) -> SlotSecret {
        let passphrase = text.last == UInt8(ascii: "\n") ? text.dropLast() : text[...]
        return try SlotSecret(kind: .passphrase, bytes: passphrase.withUnsafeBytes { SecretBytes(copying: $0) })
    }

    /// Makes a secret from all bytes of a keyfile.
    /// - Throws: `invalidValue` for fewer than 32 bytes.
    package static func keyfile(_ contents: [UInt8]) throws(FormatError) -> SlotSecret {
        try SlotSecret(kind: .keyfile, bytes: contents.withUnsafeBytes { SecretBytes(copying: $0) })
    }

    /// Makes a secret from a typed recovery key.
    /// - Throws: `invalidValue` for other characters, another length, or wrong check digits.
    package static func recovery(_ text: [UInt8]) throws(FormatError) -> SlotSecret {
        try SlotSecret(kind: .recovery, bytes: try RecoveryKey.parse(text))
    }
}
