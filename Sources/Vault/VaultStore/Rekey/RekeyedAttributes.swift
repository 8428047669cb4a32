package import LinuxSystem
package import VaultCrypto
package import VaultFormat

/// The attributes of an object, encrypted again for the object that replaces it.
package enum RekeyedAttributes {
    private static let accessListPrefix = Array("system.posix_acl_".utf8)

    /// Returns the encrypted attributes of an object in their stored form under another key.
    /// - Throws: `.damaged` if one does not authenticate.
    package static func read(
        of object: Descriptor, from oldKey: SecretBytes, to newKey: SecretBytes
    ) throws(StoreError) -> [RekeyIntent.Attribute] {
        let attributes = ExtendedAttributes(object)
        let names = try attributes.namesIfSupported().filter { $0.starts(with: AttributeCodec.storedPrefix) }
        let found = try names.map { (name) throws(StoreError) in
            RekeyIntent.Attribute(name: name, value: try attributes.value(of: name))
        }
        return try encrypted(found, from: oldKey, to: newKey)
    }

    /// Encrypts stored attributes again under another key.
    static func encrypted(
        _ attributes: [RekeyIntent.Attribute], from oldKey: SecretBytes, to newKey: SecretBytes
    ) throws(StoreError) -> [RekeyIntent.Attribute] {
        guard !attributes.isEmpty else { return [] }
        let old = try StoreError.ofFormat(AttributeCodec(key: oldKey))
        let new = try StoreError.ofFormat(AttributeCodec(key: newKey))
        return try attributes.map { (attribute) throws(StoreError) in
            try StoreError.ofFormat(encrypted(attribute, old, new))
        }
    }

    private static func encrypted(
        _ attribute: RekeyIntent.Attribute, _ old: AttributeCodec, _ new: AttributeCodec
    ) throws(FormatError) -> RekeyIntent.Attribute {
        if attribute.name == AttributeCodec.packName {
            guard let sealed = try new.encrypt(pack: try old.decrypt(pack: attribute.value)) else {
                throw FormatError(.tooLong, "the pack of attributes does not fit")
            }
            return RekeyIntent.Attribute(name: attribute.name, value: sealed)
        }
        guard let name = old.name(ofStored: attribute.name) else {
            throw FormatError(.doesNotAuthenticate, "the name of an attribute is damaged")
        }
        let plaintext = try old.decrypt(value: attribute.value, name: name)
        return RekeyIntent.Attribute(
            name: try new.storedName(of: name), value: try new.encrypt(value: plaintext, name: name))
    }

    /// Copies the unencrypted attributes. Throws `.system` with errno.
    package static func copyForeign(from old: ExtendedAttributes, to new: ExtendedAttributes) throws(StoreError) {
        let wanted = try old.namesIfSupported().filter { !$0.starts(with: AttributeCodec.storedPrefix) }
        // A new file may have inherited an access list from its directory.
        for name in try new.namesIfSupported()
        where name.starts(with: accessListPrefix) && !wanted.contains(name) { try new.remove(name) }
        for name in wanted {
            let value = try old.value(of: name)
            // Skip an equal attribute, because a security module sets its own, and may refuse our call.
            if (try? new.value(of: name)) != value { try new.set(name, value, flags: 0) }
        }
    }
}
