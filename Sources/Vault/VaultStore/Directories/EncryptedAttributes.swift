internal import CLinux
package import LinuxSystem
internal import SystemPackage
package import VaultFormat

/// The `user.*` attributes of one file or directory, each stored on its own or in the object's pack. Only one thread at
/// a time may use an object's attributes.
///
/// A value on its own takes precedence over one of the same name in the pack. So a move in either direction is two
/// calls, and a kill between them changes nothing.
package struct EncryptedAttributes {
    /// Number of attributes on their own from which new ones go into the pack. More would soon leave no room for a
    /// pack, because ext4 has one block for all attributes of an object.
    static let aloneLimit = 4

    private let stored: ExtendedAttributes
    private let codec: AttributeCodec
    /// False once the object is known to have no pack. Then a missing name needs no look at the pack.
    package private(set) var mayHavePack: Bool
    /// The pack read or written last, in its stored form. Nil if there is none.
    private var storedPack: [UInt8]?

    package init(_ descriptor: Descriptor, _ codec: AttributeCodec, mayHavePack: Bool = true) {
        stored = ExtendedAttributes(descriptor)
        self.codec = codec
        self.mayHavePack = mayHavePack
    }

    /// Returns a value by its full plaintext name, like getxattr(2). Throws `ENODATA`.
    package mutating func value(of name: [UInt8]) throws(StoreError) -> [UInt8] {
        do throws(StoreError) {
            let encrypted = try stored.value(of: try storedName(of: name, orThrow: .noData))
            return try StoreError.ofFormat(codec.decrypt(value: encrypted, name: name))
        } catch .system(.noData) {
            guard let value = try pack()?[name] else { throw .system(.noData) }
            return value
        }
    }

    /// Returns the plaintext names for stored ones, including those in the pack, and the number of damaged ones.
    /// - Throws: `.system` with errno. Damage is counted instead.
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

    /// Sets a value, like setxattr(2).
    /// - Parameter flags: XATTR_CREATE, XATTR_REPLACE.
    /// - Throws: `EEXIST`, `ENODATA`, `ERANGE`, and `.system` with errno of the store; `.damaged` if a damaged pack
    ///   may have the name.
    package mutating func set(_ name: [UInt8], _ value: [UInt8], flags: Int32) throws(StoreError) {
        var change = AttributeChange(
            name: name, value: value, storedName: try storedName(of: name, orThrow: .outOfRange),
            encrypted: try StoreError.ofFormat(codec.encrypt(value: value, name: name))
        )
        change.old = try stored.valueIfPresent(of: change.storedName)
        if change.isAlone, flags & linux_XATTR_CREATE != 0 { throw .system(.fileExists) }
        let pack: AttributePack?
        do throws(StoreError) { pack = try change.isAlone ? nil : self.pack() } catch .damaged(let reason) {
            // The damaged pack may hold this name, so leave it alone and store a new attribute beside it.
            if flags & linux_XATTR_REPLACE != 0 { throw .damaged(reason) }
            return try stored.set(change.storedName, change.encrypted, flags: 0, replacing: nil)
        }
        let isPacked = pack?[name] != nil
        if isPacked, flags & linux_XATTR_CREATE != 0 { throw .system(.fileExists) }
        if !isPacked, !change.isAlone, flags & linux_XATTR_REPLACE != 0 { throw .system(.noData) }
        do throws(StoreError) {
            try put(change, pack)
        } catch .system(let errno) where Self.hasNoRoom(errno) {
            try makeRoom(for: change, errno)
        }
    }

    /// Removes an attribute, like removexattr(2). Throws `ENODATA`.
    package mutating func remove(_ name: [UInt8]) throws(StoreError) {
        let storedName = try storedName(of: name, orThrow: .noData)
        var isRemoved = false
        var damage: StoreError?
        do throws(StoreError) {
            // Remove it from the pack first, because the value on its own hides the packed one until then.
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

    private struct AttributeChange {
        let name, value, storedName, encrypted: [UInt8]
        /// The attribute's value, if it is already stored on its own.
        var old: [UInt8]?

        var isAlone: Bool { old != nil }
    }

    /// Stores an attribute where it already is. A new one is stored on its own, or in the pack if there is one or if
    /// the object has several attributes already.
    private mutating func put(_ change: AttributeChange, _ pack: AttributePack?) throws(StoreError) {
        if let old = change.old {
            let flags = linux_XATTR_REPLACE
            return try stored.set(change.storedName, change.encrypted, flags: flags, replacing: old)
        }
        let isAmongFew = pack == nil ? try ownNames().count < Self.aloneLimit : false
        if isAmongFew {
            if try Self.finds(room: { () throws(StoreError) in try putAlone(change, pack) }) { return }
            try putInPack(change, pack)
        } else {
            if try Self.finds(room: { () throws(StoreError) in try putInPack(change, pack) }) { return }
            try putAlone(change, pack)
        }
    }

    private mutating func putInPack(_ change: AttributeChange, _ old: AttributePack?) throws(StoreError) {
        var pack = old ?? AttributePack()
        pack[change.name] = change.value
        try write(pack)
    }

    private mutating func putAlone(_ change: AttributeChange, _ pack: AttributePack?) throws(StoreError) {
        try stored.set(change.storedName, change.encrypted, flags: linux_XATTR_CREATE, replacing: nil)
        guard var pack, pack[change.name] != nil else { return }
        // The pack gets smaller. If this fails, the value on its own still counts.
        pack[change.name] = nil
        try? write(pack)
    }

    /// Moves attributes into the pack, the smallest first, until the change fits. Each move needs little room and frees
    /// more.
    /// - Parameter errno: the store's error for the change.
    private mutating func makeRoom(for change: AttributeChange, _ errno: Errno) throws(StoreError) {
        var pack: AttributePack
        do throws(StoreError) { pack = try self.pack() ?? AttributePack() } catch .damaged { throw .system(errno) }
        for candidate in try candidates(besides: change) {
            var fuller = pack
            fuller[candidate.name] = candidate.value
            // Stop, because the other candidates are larger.
            guard try Self.finds(room: { () throws(StoreError) in try write(fuller) }) else { break }
            try stored.remove(candidate.storedName)
            pack = fuller
            if try Self.finds(room: { () throws(StoreError) in try put(change, pack) }) { return }
        }
        guard change.isAlone else { throw .system(errno) }
        try putInPack(change, pack)
        // The old value on its own counts until this call.
        try stored.remove(change.storedName)
    }

    /// Returns the authentic attributes on their own, in ascending order of size.
    private func candidates(besides change: AttributeChange) throws(StoreError) -> [AttributeChange] {
        var found: [AttributeChange] = []
        for storedName in try ownNames() where storedName != change.storedName {
            let encrypted = try stored.value(of: storedName)
            guard let name = codec.name(ofStored: storedName),
                let value = try? codec.decrypt(value: encrypted, name: name)
            else { continue }
            found.append(AttributeChange(name: name, value: value, storedName: storedName, encrypted: encrypted))
        }
        return found.sorted { $0.name.count + $0.value.count < $1.name.count + $1.value.count }
    }

    /// Returns false if `body` finds no room. A smaller value may still fit.
    private static func finds(room body: () throws(StoreError) -> Void) throws(StoreError) -> Bool {
        do throws(StoreError) {
            try body()
            return true
        } catch .system(let errno) where hasNoRoom(errno) {
            return false
        }
    }

    /// Returns true if the store had no room. ext4, xfs and btrfs return ENOSPC then, some others E2BIG.
    private static func hasNoRoom(_ errno: Errno) -> Bool { errno.isNoSpace || errno == .argListTooLong }

    /// Returns the pack, or nil if there is none. Throws `.damaged`.
    private mutating func pack() throws(StoreError) -> AttributePack? {
        guard mayHavePack else { return nil }
        let encrypted: [UInt8]
        do throws(StoreError) { encrypted = try stored.value(of: AttributeCodec.packName) } catch .system(.noData) {
            mayHavePack = false
            storedPack = nil
            return nil
        }
        storedPack = encrypted
        return try StoreError.ofFormat(codec.decrypt(pack: encrypted))
    }

    /// Replaces the pack in one call. Also throws `ENOSPC` for a pack over the maximum size of a stored attribute.
    private mutating func write(_ pack: AttributePack) throws(StoreError) {
        if pack.isEmpty {
            try stored.remove(AttributeCodec.packName)
            storedPack = nil
            return
        }
        guard let encrypted = try StoreError.ofFormat(codec.encrypt(pack: pack)) else { throw .system(.noSpace) }
        mayHavePack = true
        try stored.set(AttributeCodec.packName, encrypted, flags: 0, replacing: storedPack)
        storedPack = encrypted
    }

    private func ownNames() throws(StoreError) -> [[UInt8]] {
        try stored.names().filter { $0.starts(with: AttributeCodec.storedPrefix) && $0 != AttributeCodec.packName }
    }

    /// - Throws: `tooLong` if the name is too long for it.
    private func storedName(of name: [UInt8], orThrow tooLong: Errno) throws(StoreError) -> [UInt8] {
        do throws(FormatError) { return try codec.storedName(of: name) } catch { throw .system(tooLong) }
    }
}
