import VaultCrypto

/// The random identity of a vault: 16 bytes, the salt of every key derived in it (FileFormat, vaultfs.json).
package struct VaultID: Hashable, Sendable {
    package static let size = 16

    /// The 16 bytes.
    package let bytes: [UInt8]

    /// The 32 lower-case hexadecimal digits that `vaultfs.json` holds.
    package var hex: String { Hexadecimal.encode(bytes) }

    /// A new random identity. Throws when the library has no random bytes.
    package static func random() throws(FormatError) -> VaultID {
        let bytes = try cryptography("vault id") { () throws(CryptoError) in try SecureRandom.bytes(count: size) }
        return VaultID(unchecked: bytes)
    }

    /// Reads exactly 32 lower-case digits; nil for anything else (one identity has one spelling: it is in the head lines).
    package init?(hex text: [UInt8]) {
        guard text.count == 2 * Self.size else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.size)
        for index in stride(from: 0, to: text.count, by: 2) {
            guard let high = Hexadecimal.value(of: text[index]), let low = Hexadecimal.value(of: text[index + 1])
            else { return nil }
            bytes.append(high << 4 | low)
        }
        self.bytes = bytes
        guard Array(hex.utf8) == text else { return nil }
    }

    private init(unchecked bytes: [UInt8]) {
        self.bytes = bytes
    }
}
