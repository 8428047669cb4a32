internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension OpenDirectory {
    /// A name that `sweep` takes for this mount's own.
    func temporaryEntry() throws(StoreError) -> [UInt8] { try Self.temporaryEntry(in: store) }

    static func temporaryEntry(in store: Store) throws(StoreError) -> [UInt8] {
        let number: UInt64
        do { number = try SecureRandom.integer() } catch { throw StoreError(error) }
        return EntryName.temporary(store.temporaryPrefix + String(number, radix: 16))
    }

    /// Makes an empty file under `name` with its header in it, owned as asked before the name appears. The thread's
    /// umask and the directory's default ACL apply as in open(2).
    package func createFile(
        _ name: [UInt8], mode: mode_t, owner: Owner?
    ) throws(StoreError) -> EncryptedFile {
        let encoded = try encode(name)
        var temporary: [UInt8]?
        let file: Descriptor
        do {
            file = try Descriptor(
                at: descriptor.fd, [UInt8(ascii: ".")], flags: linux_O_TMPFILE | O_RDWR, mode: mode & 0o7777)
        } catch .system(let errno) where [.notSupported, .isDirectory, .invalidArgument].contains(errno) {
            // The store has no O_TMPFILE (open(2): EOPNOTSUPP, or EISDIR from older ones).
            let entry = try temporaryEntry()
            file = try Descriptor(
                at: descriptor.fd, entry, flags: O_CREAT | O_EXCL | O_RDWR, mode: mode & 0o7777)
            temporary = entry
        }
        store.accessTimes.prepare(file: file)
        do {
            try owner?.apply(to: file, in: descriptor.fd)
            let created = try EncryptedFile.create(in: file, class: protectionClass, store: store)
            try publish(encoded, owner) { (entry) throws(StoreError) in
                if let temporary {
                    try moveIntoPlace(temporary, as: entry)
                } else {
                    try link(file, as: entry)
                }
            }
            return created
        } catch {
            if let temporary { removeQuietly(temporary) }
            throw error
        }
    }

    private func link(_ file: Descriptor, as entry: [UInt8]) throws(StoreError) {
        let path = "/proc/self/fd/\(file.fd)"
        try withCString(entry) { (name) throws(StoreError) in
            _ = try retrying { linkat(AT_FDCWD, path, descriptor.fd, name, AT_SYMLINK_FOLLOW) }
        }
    }

    /// rename(2) that does not replace.
    func moveIntoPlace(_ temporary: [UInt8], as entry: [UInt8]) throws(StoreError) {
        try rename(temporary, in: descriptor.fd, as: entry, flags: linux_RENAME_NOREPLACE)
    }

    func rename(
        _ entry: [UInt8], in directory: Int32, as newEntry: [UInt8], flags: UInt32
    ) throws(StoreError) {
        try Self.rename(entry, from: descriptor.fd, to: directory, as: newEntry, flags: flags)
    }

    /// renameat2(2) of backing entries, for directories whose record is lost too.
    static func rename(
        _ entry: [UInt8], from source: Int32, to directory: Int32, as newEntry: [UInt8], flags: UInt32
    ) throws(StoreError) {
        do {
            try withCString(entry) { (old) throws(StoreError) in
                try withCString(newEntry) { (new) throws(StoreError) in
                    _ = try retrying { linux_renameat2(source, old, directory, new, flags) }
                }
            }
        } catch .system(.invalidArgument) where flags == linux_RENAME_NOREPLACE {
            // A store that knows no flags (FUSE, NFS): we own the directory, so a look before is enough.
            var status = stat()
            let exists = withCString(newEntry) { fstatat(directory, $0, &status, AT_SYMLINK_NOFOLLOW) } == 0
            if exists { throw .system(.fileExists) }
            try rename(entry, from: source, to: directory, as: newEntry, flags: 0)
        }
    }

    /// Lets an entry appear by `appear`; a long name's sidecar is durable before and goes again where that fails.
    func publish(
        _ encoded: EntryName.Encoded, _ owner: Owner?, _ appear: ([UInt8]) throws(StoreError) -> Void
    ) throws(StoreError) {
        if let blob = encoded.sidecarBlob { try writeSidecar(of: encoded.entry, blob, owner) }
        do {
            try appear(encoded.entry)
        } catch {
            if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
            throw error
        }
    }

    private func writeSidecar(of entry: [UInt8], _ blob: [UInt8], _ owner: Owner?) throws(StoreError) {
        let temporary = try temporaryEntry()
        do {
            let file = try Descriptor(
                at: descriptor.fd, temporary, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o666)
            try retrying { fchmod(file.fd, 0o644) }
            if let owner { try retrying { fchown(file.fd, owner.uid, owner.gid) } }
            try blob.withBytes { (bytes) throws(StoreError) in try file.write(bytes, at: 0) }
            try file.synchronize(dataOnly: false)
            try rename(temporary, in: descriptor.fd, as: EntryName.sidecar(of: entry), flags: 0)
            try synchronizeNames()
        } catch {
            removeQuietly(temporary)
            throw error
        }
    }

    /// fsync(2) of the directory itself (an O_PATH descriptor cannot be synced).
    package func synchronizeNames() throws(StoreError) {
        let directory = try Descriptor(at: descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        try directory.synchronize(dataOnly: false)
    }

    /// Removes a long name's sidecar when no entry needs it.
    func removeOrphanedSidecar(of entry: [UInt8]) {
        do throws(StoreError) {
            _ = try status(of: entry)
        } catch .system(.noSuchFileOrDirectory) {
            removeQuietly(EntryName.sidecar(of: entry))
        } catch {
            // Whether the entry is there cannot be told: the sidecar stays.
        }
    }

    /// Best effort, for what `sweep` would find later.
    func removeQuietly(_ entry: [UInt8]) {
        _ = withCString(entry) { unlinkat(descriptor.fd, $0, 0) }
    }

    /// Makes a directory with its record in it, then lets its name appear.
    package func makeDirectory(_ name: [UInt8], mode: mode_t, owner: Owner?) throws(StoreError) {
        let encoded = try encode(name)
        let temporary = try temporaryEntry()
        try withCString(temporary) { (name) throws(StoreError) in
            _ = try retrying { mkdirat(descriptor.fd, name, mode & 0o7777) }
        }
        do {
            try fill(temporary, owner: owner)
            try publish(encoded, owner) { (entry) throws(StoreError) in try moveIntoPlace(temporary, as: entry) }
        } catch {
            discardDirectory(temporary)
            throw error
        }
    }

    /// Writes the record of a new directory, durably, whatever mode the directory has.
    private func fill(_ temporary: [UInt8], owner: Owner?) throws(StoreError) {
        let made = try status(of: temporary)
        let needsAccess = made.st_mode & 0o700 != 0o700 && geteuid() != 0
        if needsAccess { try changeMode(of: temporary, to: made.st_mode & 0o7777 | 0o700) }
        let directory = try Descriptor(at: descriptor.fd, temporary, flags: O_RDONLY | O_DIRECTORY)
        let cipher = try store.keyRing.classCipher(protectionClass)
        let bytes: [UInt8]
        do {
            bytes = try DirectoryRecord.make(
                protectionClass, epoch: store.keyRing.epochs.current, isRoot: false, classCipher: cipher,
                vault: store.keyRing.vault
            ).bytes
        } catch { throw StoreError(error) }
        let record = try Descriptor(
            at: directory.fd, Self.recordEntry, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o644)
        try retrying { fchmod(record.fd, 0o644) }
        try bytes.withBytes { (bytes) throws(StoreError) in try record.write(bytes, at: 0) }
        if let owner {
            try retrying { fchown(record.fd, owner.uid, owner.gid) }
            try owner.apply(to: directory, in: descriptor.fd)
        }
        try record.synchronize(dataOnly: false)
        if needsAccess { try retrying { fchmod(directory.fd, made.st_mode & 0o7777) } }
    }

    func changeMode(of entry: [UInt8], to mode: mode_t) throws(StoreError) {
        try Descriptor(at: descriptor.fd, entry, flags: linux_O_PATH).changePinnedMode(to: mode)
    }

    /// Removes a temporary directory with nothing but its record in it.
    func discardDirectory(_ temporary: [UInt8]) {
        if let inside = try? Descriptor(at: descriptor.fd, temporary, flags: linux_O_PATH | O_DIRECTORY) {
            _ = try? inside.openToOwner()
            _ = withCString(Self.recordEntry) { unlinkat(inside.fd, $0, 0) }
        }
        _ = withCString(temporary) { unlinkat(descriptor.fd, $0, AT_REMOVEDIR) }
    }

    /// mknod(2): a fifo, a socket or a device (a regular file is `createFile`'s).
    package func makeNode(_ name: [UInt8], mode: mode_t, device: dev_t, owner: Owner?) throws(StoreError) {
        try makeUnopened(name, owner: owner) { (entry) throws(StoreError) in
            _ = try retrying { mknodat(descriptor.fd, entry, mode, device) }
        }
    }

    /// symlink(2) with an encrypted target.
    /// - Throws: `ENAMETOOLONG` for a target over 3000 bytes.
    package func makeLink(_ name: [UInt8], target: [UInt8], owner: Owner?) throws(StoreError) {
        guard target.count <= LinkTarget.maximumLength else { throw .system(.fileNameTooLong) }
        let cipher = try store.keyRing.linkCipher(protectionClass)
        let stored: [UInt8]
        do {
            stored = try LinkTarget.encode(target, class: protectionClass, linkCipher: cipher)
        } catch { throw .system(.invalidArgument) }
        try makeUnopened(name, owner: owner) { (entry) throws(StoreError) in
            try withCString(stored) { (target) throws(StoreError) in
                _ = try retrying { symlinkat(target, descriptor.fd, entry) }
            }
        }
    }

    /// Makes what cannot be opened; where it is for another user, under a temporary name first.
    private func makeUnopened(
        _ name: [UInt8], owner: Owner?, _ make: (UnsafePointer<CChar>) throws(StoreError) -> Void
    ) throws(StoreError) {
        let encoded = try encode(name)
        guard let owner else {
            return try publish(encoded, owner) { (entry) throws(StoreError) in try withCString(entry, make) }
        }
        let temporary = try temporaryEntry()
        try withCString(temporary, make)
        do {
            try owner.apply(toEntry: temporary, in: descriptor.fd)
            try publish(encoded, owner) { (entry) throws(StoreError) in try moveIntoPlace(temporary, as: entry) }
        } catch {
            removeQuietly(temporary)
            throw error
        }
    }

    /// link(2): another name for a file that has one.
    package func link(
        _ name: [UInt8], to existing: [UInt8], in directory: Descriptor, owner: Owner? = nil
    ) throws(StoreError) {
        try publish(try encode(name), owner) { (entry) throws(StoreError) in
            try withCString(existing) { (old) throws(StoreError) in
                try withCString(entry) { (new) throws(StoreError) in
                    _ = try retrying { linkat(directory.fd, old, descriptor.fd, new, 0) }
                }
            }
        }
    }
}
