internal import LinuxSystem
package import VaultCrypto

/// The `user.*` extended attributes of one object in their backing form (FileFormat, Extended attributes).
///
/// Name: `user.vaultfs.` ‖ base64url(SIV(key; `name`; N)), N being the name without `user.`; value:
/// SIV(key; `value`, N; 0x00 ‖ value). An object's pack holds further attributes in one value. Any thread.
package struct AttributeCodec: Sendable {
    /// The longest full name, plaintext or stored, in bytes: the kernel's XATTR_NAME_MAX.
    package static let maximumNameLength = 255
    /// Bytes by which a stored value is longer than the value.
    package static let valueOverhead = 17

    /// The stored name of the pack. The part after the prefix is shorter than any encrypted name.
    package static let packName: [UInt8] = Array("user.vaultfs.pack".utf8)

    /// The beginning of every stored name.
    package static let storedPrefix: [UInt8] = Array("user.vaultfs.".utf8)
    static let userPrefix: [UInt8] = Array("user.".utf8)
    private static let reservedPrefix: [UInt8] = Array("vaultfs.".utf8)
    private static let nameContext: [[UInt8]] = [Array("name".utf8)]
    private static let valueContext: [UInt8] = Array("value".utf8)
    private static let packContext: [[UInt8]] = [Array("pack".utf8)]
    private static let tagSize = 16

    private let cipher: SivCipher

    /// Makes a codec under `key`, the 64-byte attribute key of a file or directory.
    /// - Throws: `cryptography`; `keyForgotten`.
    package init(key: SecretBytes) throws(FormatError) {
        cipher = try cryptography("attribute key", SivCipher(key: key))
    }

    /// Returns the full backing name for the full plaintext name `user.…`. Throws `tooLong` if it does not fit 255
    /// bytes (names of over 165 bytes after `user.`); `invalidValue` for a name outside `user.`, empty after it, or
    /// under `user.vaultfs.`.
    package func storedName(of name: [UInt8]) throws(FormatError) -> [UInt8] {
        let inner = try Self.inner(of: name)
        try require(
            Self.isStorable(inner: inner), .tooLong,
            "attribute name of \(name.count) bytes does not fit when encrypted")
        let sealed = try cryptography("attribute name", cipher.encrypt(inner, associatedData: Self.nameContext))
        return Base64.url.encode(sealed, after: Self.storedPrefix)
    }

    /// Returns the full plaintext name of a full backing name. Nil for a foreign name and if it does not authenticate.
    package func name(ofStored stored: [UInt8]) -> [UInt8]? {
        guard stored.starts(with: Self.storedPrefix), stored.count <= Self.maximumNameLength,
            let sealed = Base64.url.decode(stored[Self.storedPrefix.count...]), sealed.count > Self.tagSize,
            let inner = try? cipher.decrypt(sealed, associatedData: Self.nameContext)
        else { return nil }
        let name = Self.userPrefix + inner
        return (try? Self.inner(of: name)) == nil ? nil : name
    }

    /// Returns the stored form of `value`, bound to the full plaintext name.
    /// - Throws: `invalidValue` for a name that cannot be stored; `cryptography`.
    package func encrypt(value: [UInt8], name: [UInt8]) throws(FormatError) -> [UInt8] {
        let associatedData = [Self.valueContext, try Self.inner(of: name)]
        // Prepend a byte, because an empty value is common and SIV must not be given an empty plaintext.
        let plaintext = [0] + value
        return try cryptography("attribute value", cipher.encrypt(plaintext, associatedData: associatedData))
    }

    /// Returns the value stored under the full plaintext name. Throws `malformed` or `doesNotAuthenticate`.
    package func decrypt(value stored: [UInt8], name: [UInt8]) throws(FormatError) -> [UInt8] {
        try require(
            stored.count >= Self.valueOverhead, .malformed, "attribute value: \(stored.count) bytes cannot be one")
        let associatedData = [Self.valueContext, try Self.inner(of: name)]
        let plaintext = try cryptography("attribute value", cipher.decrypt(stored, associatedData: associatedData))
        try require(plaintext.first == 0, .malformed, "attribute value: unknown form")
        return Array(plaintext.dropFirst())
    }

    /// Returns the stored form of a pack, or nil if it exceeds the maximum size of a stored attribute.
    /// - Throws: `cryptography`; `keyForgotten`.
    package func encrypt(pack: AttributePack) throws(FormatError) -> [UInt8]? {
        guard let plaintext = pack.serialized(overhead: Self.tagSize) else { return nil }
        return try cryptography("pack of attributes", cipher.encrypt(plaintext, associatedData: Self.packContext))
    }

    /// Decrypts the pack stored under `packName`. Throws `malformed` or `doesNotAuthenticate`.
    package func decrypt(pack stored: [UInt8]) throws(FormatError) -> AttributePack {
        try require(stored.count > Self.tagSize, .malformed, "pack of attributes: \(stored.count) bytes cannot be one")
        let plaintext = try cryptography(
            "pack of attributes",
            try cipher.decrypt(stored, associatedData: Self.packContext))
        return try AttributePack(parsing: plaintext)
    }

    /// Returns the name without `user.`. Throws if the format cannot store it.
    private static func inner(of name: [UInt8]) throws(FormatError) -> [UInt8] {
        try require(
            name.starts(with: userPrefix) && name.count > userPrefix.count && !name.contains(0), .invalidValue,
            "not the name of a user attribute")
        let inner = Array(name[userPrefix.count...])
        try require(
            !inner.starts(with: reservedPrefix), .invalidValue, "attribute names under user.vaultfs. are reserved")
        return inner
    }

    /// Returns true if an attribute, on its own or in a pack, can have this name (without `user.`).
    static func isStorable<Name: Collection<UInt8>>(inner: Name) -> Bool {
        !inner.isEmpty && !inner.contains(0) && !inner.starts(with: reservedPrefix)
            && storedPrefix.count + Base64.url.encodedCount(inner.count + tagSize) <= maximumNameLength
    }
}
