internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    // MARK: Directories

    /// Gives every directory of the previous epoch a new secret, the innermost first. So the backing paths of the directories
    /// to come stay valid.
    func rekeyDirectories() throws(StoreError) {
        try walk(leave: { [self] (directory) throws(StoreError) in
            onProgress(totals)
            guard let old = directory.record, old.epoch == store.keyRing.epochs.previous else { return }
            do throws(StoreError) {
                try rekey(directory, old)
                shared.count { $0.directories += 1 }
            } catch {
                try checkStep(error)
                shared.take(error, about: directory.shown)
            }
            try shared.check()
        })
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
        let attributes = try RekeyCopies.attributes(
            of: directory.descriptor, from: oldKeys.attributeKey, to: made.keys.attributeKey)
        let step = RekeyIntent.Directory(
            path: directory.path, oldRecord: old.bytes, newRecord: made.bytes, times: directory.times,
            attributes: attributes)
        // A block for each sidecar and for each attribute.
        let longNames = entries.count { EntryName.kind(of: $0) == .longName }
        let space = longNames * 4096 + attributes.reduce(0) { $0 + $1.name.count + $1.value.count + 4096 }
        try intents.carryOut(.directory(step), space: space)
    }

    // MARK: The end

    /// Returns true if nothing of the previous epoch is left, and nothing that may be. Reports what is, and removes from the
    /// journal what it holds of the previous epoch.
    func isComplete() throws(StoreError) -> Bool {
        var left = 0
        var unused = store.journal.retainedFiles
        try walk(
            visit: { [self] (object) throws(StoreError) in
                switch try copies.kind(of: object) {
                case .current(let fileID): if let fileID { unused.remove(fileID) }
                case .foreign: return
                case .previousFile, .previousLink, .damaged: left += 1
                }
            },
            leave: { [self] (directory) throws(StoreError) in
                if try check(directory) { left += 1 }
                // Everything is durable before the old key goes. Files are already.
                if store.isOnFuse { try directory.descriptor.synchronize(dataOnly: false) }
            })
        // A slot may hold the one good record of a file that could not be read.
        guard left == 0 && totals.problems == 0 else { return false }
        try store.admitChange()
        for fileID in unused { store.journal.forget(file: fileID) }
        try store.journal.wipeFreeSlots()
        return true
    }

    /// Reports what is wrong with a directory. Returns true if it is of the previous epoch.
    private func check(_ directory: RekeyDirectory) throws(StoreError) -> Bool {
        if let error = directory.unread { try shared.walkFailed(directory.shown, error) }
        guard let record = directory.record else {
            if directory.isNamed {
                shared.problem(directory.shown, "vaultfs.dir: missing, or it does not authenticate")
            }
            return false
        }
        let isCurrent = record.epoch == store.keyRing.epochs.current
        let entries = try directory.descriptor.allEntries()
        for entry in try directory.leftovers() {
            shared.problem(
                directory.shownPath(of: entry),
                "a leftover that cannot be removed, and may hold old objects: move it out of the vault")
        }
        // A directory of the previous epoch is reported as a whole.
        guard isCurrent, let keys = directory.keys else { return true }
        for entry in entries {
            do throws(StoreError) {
                if EntryName.isObject(entry) {
                    try directory.checkName(of: entry, under: keys)
                } else if EntryName.kind(of: entry) == .sidecar {
                    try removeOrphan(entry, directory)
                }
            } catch {
                try shared.walkFailed(directory.shownPath(of: entry), error)
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
}
