internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// A directory of a vault that is being rekeyed. Everyone who works in it keeps a reference. When the last one goes, the
/// directory gets its times back. Any thread.
final class RekeyDirectory: WalkedDirectory, Sendable {
    let descriptor: Descriptor
    /// The backing entries that lead here from the root.
    let path: [[UInt8]]
    /// The path for messages, with plaintext names where they authenticate.
    let shown: [UInt8]
    /// Nil if the record does not authenticate.
    let record: DirectoryRecord?
    let keys: DirectoryKeys?
    /// The error that kept the record from being read.
    let unread: StoreError?
    /// True for the root, and if the directory's own name authenticates.
    let isNamed: Bool
    private let status: stat
    private let keyRing: KeyRing
    private let isChanged = Mutex(false)

    init(
        _ entry: [UInt8], in parent: Descriptor, path: [[UInt8]] = [], shown: [UInt8] = [], isNamed: Bool = true,
        _ keyRing: KeyRing
    ) throws(StoreError) {
        descriptor = try parent.inner(entry)
        status = try descriptor.status()
        // Their owner has to open it first: a rekey changes no modes.
        if status.denies(0o700) { throw .system(.permissionDenied) }
        (self.keyRing, self.path, self.shown, self.isNamed) = (keyRing, path, shown, isNamed)
        var opened: (record: DirectoryRecord, keys: DirectoryKeys)?
        var unread: StoreError?
        do throws(StoreError) { opened = try OpenDirectory.openRecord(of: descriptor, keyRing) } catch {
            if case .damaged = error {} else { unread = error }
        }
        (record, keys, self.unread) = (opened?.record, opened?.keys, unread)
    }

    func inner(_ entry: [UInt8]) throws(StoreError) -> RekeyDirectory {
        try RekeyDirectory(
            entry, in: descriptor, path: path + [entry], shown: shownPath(of: entry),
            isNamed: name(of: entry) != nil, keyRing)
    }

    /// Reads the directory again, with the record that it has now.
    func reread() throws(StoreError) -> RekeyDirectory {
        try RekeyDirectory([UInt8(ascii: ".")], in: descriptor, path: path, shown: shown, isNamed: isNamed, keyRing)
    }

    deinit {
        // Best effort: if it fails, only the times are wrong.
        if isChanged.withLock(\.self) { futimens(descriptor.fd, [status.st_atim, status.st_mtim]) }
    }

    /// atime and mtime, in seconds and nanoseconds.
    var times: [UInt64] {
        [status.st_atim, status.st_mtim].flatMap {
            [UInt64(bitPattern: Int64($0.tv_sec)), UInt64(bitPattern: Int64($0.tv_nsec))]
        }
    }

    /// To be called before entries are made, replaced or removed. The times are then restored at the end.
    func willChange() { isChanged.withLock { $0 = true } }

    /// Returns the `vaultfs.tmp.*` here, except those of a concurrent change of slots.
    func leftovers() throws(StoreError) -> [[UInt8]] {
        try descriptor.allEntries().filter {
            EntryName.kind(of: $0) == .temporary && !$0.starts(with: Array(ConfigurationReplacement.prefix.utf8))
        }
    }

    // MARK: Names

    /// Returns the plaintext name of an entry, or nil if it does not authenticate here.
    func name(of entry: [UInt8]) -> [UInt8]? {
        guard let keys else { return nil }
        let blob = EntryName.kind(of: entry) == .longName ? descriptor.sidecarBlob(of: entry) : nil
        return EntryName.decode(entry, sidecarBlob: blob, keys: keys)
    }

    /// Returns the path of an entry, for messages.
    func shownPath(of entry: [UInt8]) -> [UInt8] {
        (shown.isEmpty ? [] : shown + [UInt8(ascii: "/")]) + (name(of: entry) ?? entry)
    }

    /// Returns the plaintext name of an entry under the first of the keys with which it authenticates, and the index of
    /// those keys. Returns nil if the entry does not belong to the vault.
    /// - Throws: `.damaged` if the entry belongs to the vault, or may, and its name does not authenticate; `.system` if
    ///   its sidecar cannot be read.
    func name(of entry: [UInt8], under keys: [DirectoryKeys]) throws(StoreError) -> (name: [UInt8], key: Int)? {
        let isLong = EntryName.kind(of: entry) == .longName
        let blob = isLong ? try sidecar(of: entry) : nil
        for (index, keys) in keys.enumerated() {
            if let name = EntryName.decode(entry, sidecarBlob: blob, keys: keys) { return (name, index) }
        }
        // An entry with a sidecar is a name of some vault, and may be one of this.
        if blob == nil, try !isNameless(entry) { return nil }
        throw .damaged("the name of \(Self.shown(entry)) does not authenticate")
    }

    /// Throws if the name of an entry that may belong to the vault is lost or cannot be read. The error names the entry.
    func checkName(of entry: [UInt8], under keys: DirectoryKeys) throws(StoreError) {
        do throws(StoreError) {
            _ = try name(of: entry, under: [keys])
        } catch .system(let errno) where !StoreError.system(errno).endsRekey {
            throw .damaged("the sidecar of \(Self.shown(entry)) cannot be read: \(errno)")
        }
    }

    /// Returns true if an entry without a name belongs to the vault.
    private func isNameless(_ entry: [UInt8]) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try LostObject.look(at: entry, in: descriptor, keyRing) != nil
        } catch .system(let errno) where !StoreError.system(errno).endsRekey {
            if isFileSystems(entry) { return false }
            throw .damaged("\(Self.shown(entry)) cannot be read, and may belong to the vault: \(errno)")
        }
    }

    private func sidecar(of entry: [UInt8]) throws(StoreError) -> [UInt8]? {
        do throws(StoreError) {
            return try descriptor.readSidecar(of: entry)
        } catch .system(let errno)
            where [.tooManySymbolicLinkLevels, .isDirectory, .noSuchAddressOrDevice].contains(errno)
        {
            throw .damaged("the sidecar of \(Self.shown(entry)) is not a regular file")
        }
    }

    /// Returns true for the directory that mkfs(8) makes for fsck(8) at the root of a file system. Only root can read it.
    func isFileSystems(_ entry: [UInt8]) -> Bool {
        guard entry == Array("lost+found".utf8), geteuid() != 0, let status = try? descriptor.status(of: entry) else {
            return false
        }
        return status.st_uid == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    /// An entry of a backing directory, for messages.
    static func shown(_ entry: [UInt8]) -> String { FilePath(String(decoding: entry, as: UTF8.self)).shown }
}

/// A file, link or special file that a rekey visits.
struct RekeyObject {
    let entry: [UInt8]
    let directory: RekeyDirectory
    /// O_PATH, so that the object opened later is the one whose status was read.
    let pin: Descriptor
    let status: stat

    init(_ entry: [UInt8], in directory: RekeyDirectory) throws(StoreError) {
        self.entry = entry
        self.directory = directory
        pin = try Descriptor(at: directory.descriptor.fd, entry, flags: linux_O_PATH)
        status = try pin.status()
    }

    var identity: FileIdentity { FileIdentity(status) }
    var path: [[UInt8]] { directory.path + [entry] }
    var shownPath: [UInt8] { directory.shownPath(of: entry) }
}

extension RekeySteps {
    /// Opens the directory at a path of backing entries from the vault's root. Follows no link.
    func directory(at path: some Sequence<[UInt8]>) throws(StoreError) -> RekeyDirectory {
        var directory = try RekeyDirectory([UInt8(ascii: ".")], in: root, keyRing)
        for entry in path { directory = try directory.inner(entry) }
        return directory
    }
}

/// Finds the work of a rekey, and gives the directories of the previous epoch new secrets.
extension Rekeyer {
    /// Removes the leftovers of interrupted operations, counts the work, and finds the names of each object.
    func lookAround() throws(StoreError) -> Names {
        var names: Names = [:]
        try walk(
            visit: { (object) throws(StoreError) in
                switch try kind(of: object) {
                case .previousFile:
                    survey {
                        $0.files += 1
                        // Holes are not copied.
                        $0.bytes += UInt64(max(0, min(object.status.st_size, object.status.st_blocks * 512)))
                    }
                case .previousLink: break
                case .current, .damaged, .foreign: return
                }
                if object.status.st_nlink > 1 {
                    names[object.identity, default: (0, [])].paths.append(object.path)
                    names[object.identity]?.count = Int(object.status.st_nlink)
                }
            },
            leave: { (directory) throws(StoreError) in
                // Only in directories of this vault: another vault may be inside.
                guard directory.record != nil else { return }
                for entry in try directory.leftovers() {
                    try store.admitChange()
                    directory.willChange()
                    OpenDirectory.remove(entry, from: directory.descriptor)
                }
            })
        checkNames(&names)
        return names
    }

    /// Gives every directory of the previous epoch a new secret, the innermost first. So the backing paths of the directories
    /// to come stay valid. Also looks for everything that is still of the previous epoch, or may be, and reports it.
    /// - Returns: false if something is left.
    func rekeyDirectories() throws(StoreError) -> Bool {
        var left = 0
        try walk(
            visit: { (object) throws(StoreError) in
                switch try kind(of: object) {
                case .current, .foreign: return
                case .previousFile, .previousLink, .damaged: left += 1
                }
            },
            leave: { (directory) throws(StoreError) in
                showProgress()
                do throws(StoreError) {
                    if let old = directory.record, old.epoch == store.keyRing.epochs.previous {
                        try rekey(directory, old)
                        count { $0.directories += 1 }
                    }
                    if try isLeft(directory.reread()) { left += 1 }
                    // Everything is durable before the old key goes. Files are already.
                    if store.isOnFuse { try directory.descriptor.synchronize(dataOnly: false) }
                } catch {
                    try checkStep(error)
                    take(error, about: directory.shown)
                }
            })
        return left == 0 && totals.problems == 0
    }

    private func rekey(_ directory: RekeyDirectory, _ old: DirectoryRecord) throws(StoreError) {
        guard let oldKeys = directory.keys else { return }
        let made = try store.keyRing.makeRecord(old.protectionClass, isRoot: old.isRoot)
        guard old.isRoot == directory.path.isEmpty else { throw .damaged("vaultfs.dir: the root's flag") }
        // Do not begin a step that could only be undone.
        let owner = try OpenDirectory.readRecord(of: directory.descriptor).status.st_uid
        guard [0, owner].contains(geteuid()) else {
            throw .damaged("vaultfs.dir belongs to user \(owner): only they or root can replace it")
        }
        let entries = try directory.descriptor.allEntries()
        for entry in entries where EntryName.isObject(entry) { try directory.checkName(of: entry, under: oldKeys) }
        let attributes = try Self.attributes(
            of: directory.descriptor, from: oldKeys.attributeKey, to: made.keys.attributeKey)
        let step = RekeyIntent.Directory(
            path: directory.path, oldRecord: old.bytes, newRecord: made.bytes, times: directory.times,
            attributes: attributes)
        // A block for each sidecar and for each attribute.
        let longNames = entries.count { EntryName.kind(of: $0) == .longName }
        let space = longNames * 4096 + attributes.reduce(0) { $0 + $1.name.count + $1.value.count + 4096 }
        try steps.carryOut(.directory(step), space: space)
    }

    /// Reports what is wrong with a directory. Returns true if it is of the previous epoch.
    private func isLeft(_ directory: RekeyDirectory) throws(StoreError) -> Bool {
        if let error = directory.unread { take(error, about: directory.shown) }
        guard let record = directory.record, let keys = directory.keys else {
            if directory.isNamed {
                problem(directory.shown, "vaultfs.dir: missing, or it does not authenticate")
            }
            return false
        }
        for entry in try directory.leftovers() {
            problem(
                directory.shownPath(of: entry),
                "a leftover that cannot be removed, and may hold old objects: move it out of the vault")
        }
        // A directory of the previous epoch is reported as a whole.
        guard record.epoch == store.keyRing.epochs.current else { return true }
        for entry in try directory.descriptor.allEntries() {
            do throws(StoreError) {
                if EntryName.isObject(entry) {
                    try directory.checkName(of: entry, under: keys)
                } else if EntryName.kind(of: entry) == .sidecar {
                    try removeOrphan(entry, directory)
                }
            } catch {
                take(error, about: directory.shownPath(of: entry))
            }
        }
        return false
    }

    /// Removes a sidecar whose entry is gone. An interrupted operation can leave one, of either key.
    private func removeOrphan(_ sidecar: [UInt8], _ directory: RekeyDirectory) throws(StoreError) {
        guard try directory.descriptor.isSidecarOrphaned(sidecar) else { return }
        try store.admitChange()
        directory.willChange()
        try directory.descriptor.remove(sidecar)
        try directory.descriptor.synchronize(dataOnly: false)
    }

    /// Throws an error of a step that ends the rekey: no step can begin while one is incomplete.
    func checkStep(_ error: StoreError) throws(StoreError) {
        if error.endsRekey { throw error }
        if try RekeySteps.isIncomplete(in: store.root) { throw error }
    }
}
