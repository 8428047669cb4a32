internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultFormat

/// A directory of a vault during a rekey. Its users keep references, and releasing the last one restores the
/// directory's times. Any thread.
package final class RekeyDirectory: WalkedDirectory, Sendable {
    package let descriptor: Descriptor
    /// The backing entries from the root to the directory.
    package let path: [Component]
    /// The path for messages, with plaintext names where they authenticate.
    package let shown: [UInt8]
    /// Nil if the record does not authenticate.
    package let record: DirectoryRecord?
    package let keys: DirectoryKeys?
    /// The error because of which the record could not be read.
    package let unread: StoreError?
    /// True for the root, and if the directory's own name authenticates.
    package let isNamed: Bool
    private let status: stat
    private let keyRing: KeyRing
    private let isChanged = Mutex(false)

    /// - Parameter descriptor: open for reading, for this object only.
    init(
        _ descriptor: Descriptor, path: [Component] = [], shown: [UInt8] = [], isNamed: Bool = true, _ keyRing: KeyRing
    ) throws(StoreError) {
        self.descriptor = descriptor
        status = try descriptor.status()
        // The directory's owner must open it first, because a rekey changes no modes.
        if status.denies(0o700) { throw .system(.permissionDenied) }
        (self.keyRing, self.path, self.shown, self.isNamed) = (keyRing, path, shown, isNamed)
        var opened: (record: DirectoryRecord, keys: DirectoryKeys)?
        var unread: StoreError?
        do throws(StoreError) { opened = try OpenDirectory.openRecord(of: descriptor, keyRing) } catch {
            if case .damaged = error {} else { unread = error }
        }
        (record, keys, self.unread) = (opened?.record, opened?.keys, unread)
    }

    package func inner(_ entry: Component) throws(StoreError) -> RekeyDirectory {
        try RekeyDirectory(
            descriptor.inner(entry), path: path + [entry], shown: shownPath(of: entry),
            isNamed: name(of: entry) != nil, keyRing)
    }

    package func identity() -> [UInt8]? { keys?.identity }

    /// Reads the directory again, with its current record.
    /// - Throws: `EACCES` if it is closed to its owner; errno of another call. A damaged record is not an error.
    package func reread() throws(StoreError) -> RekeyDirectory {
        try RekeyDirectory(descriptor.openedForReading(), path: path, shown: shown, isNamed: isNamed, keyRing)
    }

    deinit {
        // Best effort: if it fails, only the times are wrong.
        if isChanged.withLock(\.self) { futimens(descriptor.fd, [status.st_atim, status.st_mtim]) }
    }

    /// atime and mtime, in seconds and nanoseconds.
    package var times: [UInt64] {
        [status.st_atim, status.st_mtim].flatMap {
            [UInt64(bitPattern: Int64($0.tv_sec)), UInt64(bitPattern: Int64($0.tv_nsec))]
        }
    }

    /// Must be called before a change of entries. The times are then restored at the end.
    package func willChange() { isChanged.withLock { $0 = true } }

    /// Returns the `vaultfs.tmp.*` of this directory, except those of a change of slots.
    /// - Throws: `.system` with errno.
    package func leftovers() throws(StoreError) -> [Component] {
        try descriptor.allEntries().filter(OpenDirectory.isLeftover)
    }

    /// Returns the plaintext name of an entry, or nil if it does not authenticate here.
    package func name(of entry: Component) -> [UInt8]? { keys.flatMap { descriptor.name(of: entry, $0) } }

    /// Returns the path of an entry, for messages.
    package func shownPath(of entry: Component) -> [UInt8] {
        (shown.isEmpty ? [] : shown + [UInt8(ascii: "/")]) + (name(of: entry) ?? entry.bytes)
    }

    /// Returns the plaintext name of an entry under the first of the keys with which it authenticates, and the index of
    /// those keys. Returns nil if the entry does not belong to the vault.
    /// - Throws: `.damaged` if the name of an entry that belongs to the vault, or may, does not authenticate; `.system`
    ///   if its sidecar cannot be read.
    func name(of entry: Component, under keys: [DirectoryKeys]) throws(StoreError) -> (name: [UInt8], key: Int)? {
        let isLong = EntryName.kind(of: entry.bytes) == .longName
        let blob = isLong ? try sidecar(of: entry) : nil
        for (index, keys) in keys.enumerated() {
            if let name = EntryName.decode(entry.bytes, sidecarBlob: blob, keys: keys) { return (name, index) }
        }
        // An entry with a sidecar is a name of some vault, perhaps of this one.
        if blob == nil, try !isNameless(entry) { return nil }
        throw .damaged("the name of \(Self.shown(entry)) is damaged")
    }

    /// Throws if an entry that may belong to the vault cannot get a name under another key: its name is lost or
    /// unreadable, or is a conflict copy's, whose original has the same secret. The error names the entry.
    package func checkName(of entry: Component, under keys: DirectoryKeys) throws(StoreError) {
        switch EntryName.kind(of: entry.bytes) {
        case .name, .longName: break
        case .conflictCopy:
            guard descriptor.conflictName(of: entry, keys) != nil else { break }
            throw .damaged("\(Self.shown(entry)) is a conflict copy: rename or remove it in a mount, then rekey again")
        case .sidecar, .temporary, .reserved: return
        }
        do throws(StoreError) {
            _ = try name(of: entry, under: [keys])
        } catch .system(let errno) where !StoreError.system(errno).endsRekey {
            throw .damaged("the file with the long name of \(Self.shown(entry)) cannot be read: \(errno)")
        }
    }

    /// Returns true if an entry without an authentic name belongs to the vault.
    private func isNameless(_ entry: Component) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try LostObject.identify(entry, in: descriptor, keyRing) != nil
        } catch .system(let errno) where !StoreError.system(errno).endsRekey {
            if isFileSystems(entry) { return false }
            throw .damaged("\(Self.shown(entry)) cannot be read, and may belong to the vault: \(errno)")
        }
    }

    private func sidecar(of entry: Component) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) {
            return try descriptor.readSidecar(of: entry)
        } catch .system(let errno)
            where [.tooManySymbolicLinkLevels, .isDirectory, .noSuchAddressOrDevice].contains(errno)
        {
            throw .damaged("the file with the long name of \(Self.shown(entry)) is not a regular file")
        }
    }

    /// Returns true for the directory made by mkfs(8) for fsck(8) at the root of a file system. Only root can read it.
    package func isFileSystems(_ entry: Component) -> Bool {
        guard entry == "lost+found", geteuid() != 0, let status = try? descriptor.status(of: entry) else {
            return false
        }
        return status.st_uid == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    /// Returns an entry of a backing directory in the form for messages.
    static func shown(_ entry: Component) -> String { FilePath(String(decoding: entry, as: UTF8.self)).shown }
}
