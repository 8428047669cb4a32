internal import CLinux
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

extension OpenDirectory {
    /// Returns a temporary name of this mount, which `sweep` keeps.
    func temporaryEntry() throws(StoreError) -> Component { try Self.temporaryEntry(in: store) }

    static func temporaryEntry(in store: Store) throws(StoreError) -> Component {
        EntryName.temporary(store.temporaryPrefix + (try VaultDirectory.randomDigits()))
    }

    /// Makes an empty file with its header, and sets its owner before its name appears. The thread's umask and the
    /// directory's default ACL apply as in open(2).
    /// - Throws: `ENAMETOOLONG`, `EEXIST`, and `.system` with errno; `.locked` without the keys.
    package func createFile(_ name: [UInt8], mode: mode_t, owner: Owner?) throws(StoreError) -> EncryptedFile {
        let encoded = try encode(name)
        var temporary: Component?
        let file: Descriptor
        do throws(StoreError) {
            file = try descriptor.openedAgain(flags: linux_O_TMPFILE | O_RDWR, mode: mode & 0o7777)
        } catch .system(let errno) where [.notSupported, .isDirectory, .invalidArgument].contains(errno) {
            // The store lacks O_TMPFILE (open(2): EOPNOTSUPP, or EISDIR from older ones).
            let entry = try temporaryEntry()
            file = try Descriptor(at: descriptor, entry, flags: O_CREAT | O_EXCL | O_RDWR, mode: mode & 0o7777)
            temporary = entry
        }
        store.accessTimes.prepare(file: file)
        do throws(StoreError) {
            try owner?.apply(to: file, in: descriptor)
            let setIDMode = mode & (S_ISUID | S_ISGID) == 0 ? nil : try file.status().st_mode
            let created = try FileOpening(file, in: store).create(class: protectionClass)
            // Restore the set-id bits, which the write of the header has removed, unless by root.
            if let setIDMode { try retrying { fchmod(file.fd, setIDMode & 0o7777) } }
            try publish(encoded, owner) { (entry) throws(StoreError) in
                if let temporary {
                    try moveIntoPlace(temporary, as: entry)
                } else {
                    try file.linkFile(to: descriptor, as: entry)
                }
            }
            return created
        } catch {
            if let temporary { descriptor.removeQuietly(temporary) }
            throw error
        }
    }

    func moveIntoPlace(_ temporary: Component, as entry: Component) throws(StoreError) {
        try descriptor.rename(temporary, as: entry, flags: linux_RENAME_NOREPLACE)
    }

    /// Makes an entry appear by calling `appear`, after its long name's sidecar, if any, is durable. Removes the
    /// sidecar if `appear` fails.
    func publish(
        _ encoded: EntryName.Encoded, _ owner: Owner?, _ appear: (Component) throws(StoreError) -> Void
    ) throws(StoreError) {
        // An entry to be replaced may have this sidecar, durable since before it appeared. Making the sidecar again
        // would change the directory's times even if the entry stays.
        if let blob = encoded.sidecarBlob,
            descriptor.sidecarBlob(of: encoded.entry) != blob
                || (try? descriptor.statusIfPresent(of: encoded.entry)) == nil
        {
            try descriptor.install(
                blob, as: EntryName.sidecar(of: encoded.entry), by: temporaryEntry(), owner: owner, mode: 0o644)
            try synchronizeNames()
        }
        do throws(StoreError) {
            try appear(encoded.entry)
        } catch {
            if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
            throw error
        }
    }

    /// fsync(2) of the directory itself. Opens it, because an O_PATH descriptor cannot be synced.
    /// - Throws: `.system` with errno.
    package func synchronizeNames() throws(StoreError) {
        try descriptor.openedForReading().synchronize(dataOnly: false)
    }

    /// Removes a long name's sidecar if its entry is absent. Keeps it in doubt, and for a conflict copy.
    func removeOrphanedSidecar(of entry: Component) {
        guard (try? descriptor.statusIfPresent(of: entry) == nil && !hasConflictCopy(of: entry)) == true else { return }
        descriptor.removeQuietly(EntryName.sidecar(of: entry))
    }

    /// Reads the directory once a second at most, because removing many long names would otherwise read it each time.
    private func hasConflictCopy(of entry: Component) throws(StoreError) -> Bool {
        try sharedClass.twins.withLock { (known) throws(StoreError) in
            let now = monotonicMilliseconds()
            if now - known.readAt >= DirectoryClass.Twins.maximumAge {
                known.entries = try descriptor.conflictTwins()
                known.readAt = monotonicMilliseconds()
            }
            return known.entries.contains(entry)
        }
    }

    /// Makes a directory with its record, then makes its name appear. On a store that cannot rename directories, it has
    /// its name from the start. If an unclean end leaves it there without its record, `Completion` makes one.
    /// - Throws: `ENAMETOOLONG`, `EEXIST`, and `.system` with errno; `.locked` without the keys.
    package func makeDirectory(_ name: [UInt8], mode: mode_t, owner: Owner?) throws(StoreError) {
        let isNamedLast = store.traits.renamesDirectories != false
        try makeUnopened(name, owner: owner, isNamedLast: isNamedLast) { (entry) throws(StoreError) in
            try descriptor.makeDirectory(entry, mode: mode & 0o7777)
            do throws(StoreError) {
                // Open it whatever its mode.
                let pin = try Descriptor(at: descriptor, entry, flags: linux_O_PATH | O_DIRECTORY)
                let closedMode = try pin.openToOwner()
                let directory = try pin.openedForReading()
                let record = try store.keyRing.makeRecord(protectionClass).bytes
                try directory.makeFile(Self.recordEntry, of: record, owner: owner, mode: 0o644)
                try owner?.apply(to: directory, in: descriptor)
                if let closedMode { try retrying { fchmod(directory.fd, closedMode) } }
            } catch {
                Self.remove(entry, from: descriptor)
                throw error
            }
        }
    }

    /// Makes the record of a directory without one, with a new secret, durably. Owner, mode and times stay.
    /// - Parameter mode: the record's mode. Its owner is the directory's if this process is root's, which alone can set
    ///   it.
    static func makeRecord(
        of pin: Descriptor, class protectionClass: ProtectionClass, isRoot: Bool = false, mode: mode_t = 0o644,
        in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let bytes = try store.keyRing.makeRecord(protectionClass, isRoot: isRoot).bytes
        let directory = try pin.openedForReading()
        let before = try directory.status()
        try directory.install(
            bytes, as: recordEntry, by: try temporaryEntry(in: store),
            owner: geteuid() == 0 ? Owner(before) : nil, mode: mode)
        // Best effort: a user who can write to the directory, but does not own it, may not set its times.
        futimens(directory.fd, [before.st_atim, before.st_mtim])
        try directory.synchronize(dataOnly: false)
    }

    /// mknod(2) of a fifo, a socket or a device. `createFile` makes regular files.
    /// - Throws: `ENAMETOOLONG`, `EEXIST`, and `.system` with errno.
    package func makeNode(_ name: [UInt8], mode: mode_t, device: dev_t, owner: Owner?) throws(StoreError) {
        try makeUnopened(name, owner: owner, isNamedLast: true) { (entry) throws(StoreError) in
            let result = Result { () throws(StoreError) in
                try descriptor.makeNode(entry, mode: mode, device: device)
            }
            if let made = try? descriptor.status(of: entry), made.st_mode & S_IFMT != mode & S_IFMT {
                // exfat-fuse makes an empty file, for which the kernel returns EIO. Remove it, because it would be a
                // damaged file of the vault, and return EPERM like other FAT file systems (mknod(2)).
                descriptor.removeQuietly(entry)
                throw StoreError.system(.notPermitted)
            }
            try result.get()
            try apply(owner, to: entry)
        }
    }

    /// symlink(2) with an encrypted target.
    /// - Throws: `ENAMETOOLONG` for a target over 3000 bytes.
    package func makeLink(_ name: [UInt8], target: [UInt8], owner: Owner?) throws(StoreError) {
        guard target.count <= LinkTarget.maximumLength else { throw .system(.fileNameTooLong) }
        let linkClass = protectionClass.ofNewFiles
        let cipher = try store.keyRing.linkCipher(linkClass)
        let stored: [UInt8]
        do {
            stored = try LinkTarget.encode(target, class: linkClass, linkCipher: cipher)
        } catch { throw .system(.invalidArgument) }
        try makeUnopened(name, owner: owner, isNamedLast: owner != nil) { (entry) throws(StoreError) in
            try descriptor.makeLink(entry, to: stored)
            try apply(owner, to: entry)
        }
    }

    private func apply(_ owner: Owner?, to entry: Component) throws(StoreError) {
        try owner?.apply(to: Descriptor(at: descriptor, entry, flags: linux_O_PATH), in: descriptor)
    }

    /// Makes an object other than an open file.
    /// - Parameter isNamedLast: true to make it under a temporary name first. Needed if `make` has several steps.
    private func makeUnopened(
        _ name: [UInt8], owner: Owner?, isNamedLast: Bool, _ make: (Component) throws(StoreError) -> Void
    ) throws(StoreError) {
        let encoded = try encode(name)
        guard isNamedLast else { return try publish(encoded, owner, make) }
        let temporary = try temporaryEntry()
        do throws(StoreError) {
            try make(temporary)
            try publish(encoded, owner) { (entry) throws(StoreError) in try moveIntoPlace(temporary, as: entry) }
        } catch {
            Self.remove(temporary, from: descriptor)
            throw error
        }
    }

    /// link(2): another name for a file.
    /// - Throws: `ENAMETOOLONG`, `EEXIST`, and `.system` with errno.
    package func link(
        _ name: [UInt8], to existing: Component, in directory: Descriptor, owner: Owner? = nil
    ) throws(StoreError) {
        try publish(try encode(name), owner) { (entry) throws(StoreError) in
            try directory.link(existing, to: descriptor, as: entry)
            // Some FUSE stores give each name its own inode number, so the mount would keep two lengths of one file.
            // Refuse with EPERM, as where there are no links (link(2)).
            guard store.isOnFuse else { return }
            try? directory.refreshStatus(of: existing)
            guard let made = try? status(of: entry), let old = try? directory.status(of: existing),
                FileIdentity(made) != FileIdentity(old)
            else { return }
            descriptor.removeQuietly(entry)
            throw StoreError.system(.notPermitted)
        }
    }
}

/// The owner of a new object, if it is not the daemon's own user. Only root can make objects for others.
package struct Owner: Sendable {
    package var uid: uid_t
    package var gid: gid_t

    /// This process's user and group, which never change.
    private static let ownUser = geteuid()
    private static let ownGroup = getegid()

    /// Returns the owner to set for a caller. Nil if the daemon's objects have the right owner from the start.
    package static func needed(uid: uid_t, gid: gid_t) -> Owner? {
        guard ownUser == 0, uid != ownUser || gid != ownGroup else { return nil }
        return Owner(uid: uid, gid: gid)
    }

    /// fchown(2) of a new object in a directory. Keeps the set-id bits, which a change of owner clears.
    /// - Parameter object: opened, or pinned with O_PATH.
    func apply(to object: Descriptor, in directory: Descriptor) throws(StoreError) {
        let (parent, made) = (try directory.status(), try object.status())
        // Keep the group if the store has set the directory's, because the directory is setgid or mounted with grpid.
        let group = parent.st_mode & S_ISGID != 0 || made.st_gid != Self.ownGroup ? made.st_gid : gid
        try object.setOwner(uid, group)
        if made.st_mode & S_IFMT != S_IFLNK && made.st_mode & (S_ISUID | S_ISGID) != 0 {
            try object.changePinnedMode(to: made.st_mode & 0o7777)
        }
    }
}

extension Owner {
    package init(_ status: stat) { self.init(uid: status.st_uid, gid: status.st_gid) }
}
