internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Finds the work of a rekey, and gives the directories of the previous epoch new secrets.
extension Rekeyer {
    /// Removes the leftovers of interrupted operations, counts the work, and finds the names of each object.
    func findWork() throws(StoreError) -> Names {
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
                    handle(error, about: directory.shown)
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
        if ![0, owner].contains(geteuid()), try owner != ownerOfNewFiles() {
            throw .damaged("vaultfs.dir belongs to user \(owner): only they or root can replace it")
        }
        let entries = try directory.descriptor.allEntries()
        for entry in entries { try directory.checkName(of: entry, under: oldKeys) }
        let attributes = try RekeyedAttributes.read(
            of: directory.descriptor, from: oldKeys.attributeKey, to: made.keys.attributeKey)
        let step = RekeyIntent.Directory(
            path: directory.path, oldRecord: old.bytes, newRecord: made.bytes, times: directory.times,
            attributes: attributes)
        // A block for each sidecar and for each attribute.
        let longNames = entries.count { EntryName.kind(of: $0) == .longName }
        let space = longNames * 4096 + attributes.reduce(0) { $0 + $1.name.count + $1.value.count + 4096 }
        try steps.carryOut(.directory(step), space: space)
    }

    /// The owner that the store shows for our files, which is not this user with sshfs.
    private func ownerOfNewFiles() throws(StoreError) -> uid_t {
        let temporary = try VaultDirectory.temporaryEntry()
        let file = try Descriptor(at: store.root.fd, temporary, flags: O_CREAT | O_EXCL | O_RDWR, mode: 0o600)
        defer { store.root.removeQuietly(temporary) }
        return try file.status().st_uid
    }

    /// Reports what is wrong with a directory. Returns true if it is of the previous epoch.
    private func isLeft(_ directory: RekeyDirectory) throws(StoreError) -> Bool {
        if let error = directory.unread { handle(error, about: directory.shown) }
        guard let record = directory.record, let keys = directory.keys else {
            if directory.isNamed {
                problem(directory.shown, "vaultfs.dir: missing or damaged")
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
                try directory.checkName(of: entry, under: keys)
                if EntryName.kind(of: entry) == .sidecar { try removeOrphan(entry, directory) }
            } catch {
                handle(error, about: directory.shownPath(of: entry))
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
