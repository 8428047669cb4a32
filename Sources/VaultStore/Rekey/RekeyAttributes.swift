internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// What an object has besides its contents, carried over to the one that takes its place.
enum RekeyAttributes {
    private static let ownPrefix = Array("user.vaultfs.".utf8)
    private static let accessListPrefix = Array("system.posix_acl_".utf8)

    /// The `user.*` attributes of an object as they are to be stored under another key.
    /// - Throws: `.damaged` where one does not authenticate.
    static func encrypted(
        of object: Descriptor, from oldKey: SecretBytes, to newKey: SecretBytes
    ) throws(StoreError) -> [RekeyIntent.Attribute] {
        let attributes = ExtendedAttributes(object)
        let own = try names(of: attributes).filter { $0.starts(with: ownPrefix) }
        guard !own.isEmpty else { return [] }
        var found: [RekeyIntent.Attribute] = []
        for stored in own { found.append(RekeyIntent.Attribute(name: stored, value: try attributes.value(of: stored))) }
        return try encrypted(found, from: oldKey, to: newKey)
    }

    /// Attributes as they are stored under one key, as they are to be under another.
    static func encrypted(
        _ attributes: [RekeyIntent.Attribute], from oldKey: SecretBytes, to newKey: SecretBytes
    ) throws(StoreError) -> [RekeyIntent.Attribute] {
        var result: [RekeyIntent.Attribute] = []
        do throws(FormatError) {
            let (old, new) = (try AttributeCodec(key: oldKey), try AttributeCodec(key: newKey))
            for attribute in attributes { result.append(try encrypted(attribute.name, attribute.value, old, new)) }
        } catch {
            throw StoreError(error)
        }
        return result
    }

    private static func encrypted(
        _ stored: [UInt8], _ value: [UInt8], _ old: AttributeCodec, _ new: AttributeCodec
    ) throws(FormatError) -> RekeyIntent.Attribute {
        if stored == AttributeCodec.packName {
            guard let sealed = try new.seal(pack: try old.open(pack: value)) else {
                throw FormatError(.tooLong, "the pack of attributes does not fit")
            }
            return RekeyIntent.Attribute(name: stored, value: sealed)
        }
        guard let name = old.name(ofStored: stored) else {
            throw FormatError(.doesNotAuthenticate, "the name of an attribute does not authenticate")
        }
        let plaintext = try old.open(value: value, name: name)
        return RekeyIntent.Attribute(
            name: try new.storedName(of: name), value: try new.seal(value: plaintext, name: name))
    }

    /// Gives a new file owner, attributes, mode and times of the old one, in an order in which none takes another away.
    /// - Parameters:
    ///   - status: of the old one, before it was read.
    ///   - encrypted: the `user.*` attributes.
    static func carry(
        from old: Descriptor, _ status: stat, to new: Descriptor, encrypted: [RekeyIntent.Attribute]
    ) throws(StoreError) {
        let made = try new.status()
        if made.st_uid != status.st_uid || made.st_gid != status.st_gid {
            try retrying { fchown(new.fd, status.st_uid, status.st_gid) }
        }
        try carryForeign(from: ExtendedAttributes(old), to: ExtendedAttributes(new))
        for attribute in encrypted { try ExtendedAttributes(new).set(attribute.name, attribute.value, flags: 0) }
        try retrying { fchmod(new.fd, status.st_mode & 0o7777) }
        try retrying { futimens(new.fd, [status.st_atim, status.st_mtim]) }
    }

    /// Those that are not encrypted.
    static func carryForeign(from old: ExtendedAttributes, to new: ExtendedAttributes) throws(StoreError) {
        let wanted = try names(of: old).filter { !$0.starts(with: ownPrefix) }
        // The access list that a new file has from its directory.
        for name in try names(of: new) where name.starts(with: accessListPrefix) && !wanted.contains(name) {
            try new.remove(name)
        }
        for name in wanted {
            let value = try old.value(of: name)
            // A security module has set its own, and would not let us.
            if (try? new.value(of: name)) != value { try new.set(name, value, flags: 0) }
        }
    }

    private static func names(of attributes: ExtendedAttributes) throws(StoreError) -> [[UInt8]] {
        do throws(StoreError) { return try attributes.names() } catch .system(.notSupported) { return [] }
    }
}
