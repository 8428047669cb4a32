internal import CLinux
package import LinuxSystem
internal import SystemPackage
package import VaultFormat

/// The `user.*` attributes of one file or directory: together in the object's pack, or each on its own. Only one thread
/// at a time may use those of an object.
///
/// A value on its own takes precedence over one of the same name in the pack. So a move out of the pack is two calls, and
/// a kill between them changes nothing.
package struct EncryptedAttributes {
    private let stored: ExtendedAttributes
    private let codec: AttributeCodec
    /// False once the object is known to have no pack. Then a missing name needs no look at the pack.
    package private(set) var mayHavePack: Bool

    package init(_ descriptor: Descriptor, _ codec: AttributeCodec, mayHavePack: Bool = true) {
        stored = ExtendedAttributes(descriptor)
        self.codec = codec
        self.mayHavePack = mayHavePack
    }

    /// Returns a value by its full plaintext name, like getxattr(2). Throws `ENODATA`.
    package mutating func value(of name: [UInt8]) throws(StoreError) -> [UInt8] {
        do throws(StoreError) {
            let encrypted = try stored.value(of: try storedName(of: name))
            return try StoreError.ofFormat(codec.decrypt(value: encrypted, name: name))
        } catch .system(.noData) {
            guard let value = try pack()?[name] else { throw .system(.noData) }
            return value
        }
    }

    /// Returns the plaintext names for stored ones, including those in the pack, and the number that do not
    /// authenticate.
    package mutating func names(ofStored all: [[UInt8]]) throws(StoreError) -> (names: [[UInt8]], damaged: Int) {
        var names: [[UInt8]] = []
        var packed: [[UInt8]] = []
        var damaged = 0
        for storedName in all {
            if storedName == AttributeCodec.packName {
                do throws(StoreError) { packed = try pack()?.names ?? [] } catch .damaged { damaged += 1 }
            } else if let name = codec.name(ofStored: storedName) {
                names.append(name)
            } else {
                damaged += 1
            }
        }
        let alone = Set(names)
        return (names + packed.filter { !alone.contains($0) }, damaged)
    }

    /// Sets a value, like setxattr(2). A new attribute goes into the pack, or is stored on its own if the pack has its
    /// maximum size.
    /// - Parameter flags: XATTR_CREATE, XATTR_REPLACE.
    package mutating func set(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        let storedName = try storedName(of: name)
        let encrypted = try StoreError.ofFormat(codec.encrypt(value: value, name: name))
        if try stored.contains(storedName) {
            if flags & linux_XATTR_CREATE != 0 { throw .system(.fileExists) }
            return try stored.set(storedName, encrypted, flags: linux_XATTR_REPLACE)
        }
        var pack: AttributePack
        do throws(StoreError) { pack = try self.pack() ?? AttributePack() } catch .damaged(let reason) {
            // The damaged pack may hold this name. The pack stays as it is, and a new attribute is stored beside it.
            if flags & linux_XATTR_REPLACE != 0 { throw .damaged(reason) }
            return try stored.set(storedName, encrypted, flags: 0)
        }
        let isPacked = pack[name] != nil
        if isPacked, flags & linux_XATTR_CREATE != 0 { throw .system(.fileExists) }
        if !isPacked, flags & linux_XATTR_REPLACE != 0 { throw .system(.noData) }
        pack[name] = value
        do throws(StoreError) {
            try write(pack)
        } catch .system(let errno) where Self.noRoom.contains(errno) {
            try stored.set(storedName, encrypted, flags: linux_XATTR_CREATE)
            guard isPacked else { return }
            // This makes the pack smaller. The value on its own counts, even if this fails.
            pack[name] = nil
            try? write(pack)
        }
    }

    /// Removes an attribute, like removexattr(2). Throws `ENODATA`.
    package mutating func remove(_ name: [UInt8]) throws(StoreError) {
        let storedName = try storedName(of: name)
        var isRemoved = false
        var damage: StoreError?
        do throws(StoreError) {
            // Remove it from the pack first, because the value on its own hides the one in the pack until then.
            if var pack = try pack(), pack[name] != nil {
                pack[name] = nil
                try write(pack)
                isRemoved = true
            }
        } catch .damaged(let reason) {
            damage = .damaged(reason)
        }
        do throws(StoreError) { try stored.remove(storedName) } catch .system(.noData) {
            if let damage { throw damage }
            if !isRemoved { throw .system(.noData) }
        }
    }

    /// The store's errors if there is no room: ENOSPC on ext4, xfs and btrfs, E2BIG on some others, or EDQUOT.
    private static let noRoom: [Errno] = [.noSpace, .diskQuotaExceeded, .argListTooLong]

    // MARK: Stored attributes

    /// Returns the pack, or nil if there is none. Throws `.damaged`.
    private mutating func pack() throws(StoreError) -> AttributePack? {
        guard mayHavePack else { return nil }
        let encrypted: [UInt8]
        do throws(StoreError) { encrypted = try stored.value(of: AttributeCodec.packName) } catch .system(.noData) {
            mayHavePack = false
            return nil
        }
        return try StoreError.ofFormat(codec.decrypt(pack: encrypted))
    }

    /// Replaces the pack in one call. Also throws `ENOSPC` if the pack would be larger than a stored attribute can
    /// be.
    private mutating func write(_ pack: AttributePack) throws(StoreError) {
        if pack.isEmpty { return try stored.remove(AttributeCodec.packName) }
        guard let encrypted = try StoreError.ofFormat(codec.encrypt(pack: pack)) else { throw .system(.noSpace) }
        mayHavePack = true
        try stored.set(AttributeCodec.packName, encrypted, flags: 0)
    }

    private func storedName(of name: [UInt8]) throws(StoreError) -> [UInt8] {
        do throws(FormatError) { return try codec.storedName(of: name) } catch { throw .system(.outOfRange) }
    }
}
