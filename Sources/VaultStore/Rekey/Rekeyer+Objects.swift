internal import Glibc
internal import LinuxSystem
internal import VaultFormat

extension Rekeyer {
    /// The paths in the vault of each file and link of the previous epoch that has several names. With one path, the others
    /// are outside of the vault.
    typealias Names = [FileIdentity: [[[UInt8]]]]

    // MARK: Survey

    /// Removes the leftovers of interrupted operations, counts the work, and finds the names of each object.
    func lookAround() throws(StoreError) -> Names {
        var names: Names = [:]
        var counts: [FileIdentity: Int] = [:]
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
                    names[object.identity, default: []].append(object.path)
                    counts[object.identity] = Int(object.status.st_nlink)
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
        let before = totals
        for (identity, paths) in names {
            guard let count = counts[identity], count > paths.count else { continue }
            // A name may be in what could not be read. Replacing the others would part it from them.
            guard before.problems == 0 else {
                names[identity] = nil
                problem(
                    shownPath(paths[0]),
                    "\(count - paths.count) of its \(count) names may be in what could not be read",
                    isDenied: before.denied == before.problems)
                continue
            }
            self.count { $0.elsewhere += 1 }
        }
        return names
    }

    /// The path of an object for messages, of backing entries if the directory cannot be opened.
    private func shownPath(_ path: [[UInt8]]) -> [UInt8] {
        guard let entry = path.last, let directory = try? steps.directory(at: path.dropLast()) else {
            return Array(path.joined(separator: [UInt8(ascii: "/")]))
        }
        return directory.shownPath(of: entry)
    }

    // MARK: Objects with several names

    /// Replaces them one after the other, by steps that keep all names of an object together.
    func rekeyLinkSets(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for paths in names.values where paths.count > 1 {
            try check()
            showProgress()
            do throws(StoreError) {
                try rekeyLinkSet(paths, workspace)
            } catch {
                try checkStep(error)
                take(error, about: shownPath(paths[0]))
            }
        }
    }

    private func rekeyLinkSet(_ paths: [[[UInt8]]], _ workspace: Workspace) throws(StoreError) {
        guard let entry = paths[0].last else { return }
        let object = try RekeyObject(entry, in: steps.directory(at: paths[0].dropLast()))
        let temporary = try VaultDirectory.temporaryEntry()
        guard let old = try copy(object, try kind(of: object), to: temporary, in: store.root, workspace) else { return }
        do throws(StoreError) {
            try steps.carryOut(.links(RekeyIntent.Links(old: old, temporary: temporary, paths: paths)))
        } catch {
            // An incomplete step needs the copy.
            if try !RekeySteps.isIncomplete(in: store.root) { store.root.removeQuietly(temporary) }
            throw error
        }
        if case .file(let id) = old { store.journal.forget(file: id) }
        count(old)
    }

    /// Counts an object that was replaced.
    private func count(_ old: RekeyIntent.Identity) {
        count { totals in
            if case .file = old { totals.files += 1 } else { totals.links += 1 }
        }
    }

    /// Throws an error of a step that ends the rekey: no step can begin while one is incomplete.
    private func checkStep(_ error: StoreError) throws(StoreError) {
        if error.endsRekey { throw error }
        if try RekeySteps.isIncomplete(in: store.root) { throw error }
    }

    // MARK: Objects with one name

    /// Replaces objects that have one name in the vault, with one thread for each workspace.
    ///
    /// Directories follow only when this is done: a step reserves space, which copies made beside it would take.
    func rekeyFiles(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        // The first item is nil: it finds the objects.
        let pool = WorkPool<RekeyObject?>()
        let bodies = workspaces.map { workspace -> @Sendable (RekeyObject?) -> Void in
            // Each workspace is used by one thread only.
            nonisolated(unsafe) let workspace = workspace
            return { [self] object in
                if let object { return replace(object, names, workspace) }
                do throws(StoreError) {
                    try walk(visit: { (object) throws(StoreError) in
                        if !pool.offer(object) { replace(object, names, workspace) }
                    })
                } catch {
                    take(error, about: [])
                }
            }
        }
        try pool.run(nil, bodies, whileWaiting: showProgress)
        try check()
    }

    private func replace(_ object: RekeyObject, _ names: Names, _ workspace: Workspace) {
        do throws(StoreError) {
            try check()
            let kind = try kind(of: object)
            switch kind {
            case .current: return
            case .foreign: return count { $0.foreign += 1 }
            case .damaged(let reason): throw .damaged(reason)
            case .previousFile, .previousLink:
                guard object.status.st_nlink == 1 || names[object.identity]?.count == 1 else { return }
            }
            let directory = object.directory.descriptor
            let temporary = try VaultDirectory.temporaryEntry()
            object.directory.willChange()
            guard let old = try copy(object, kind, to: temporary, in: directory, workspace) else { return }
            try directory.withTemporary(temporary) { () throws(StoreError) in
                try steps.before(.replaceEntry)
                try directory.rename(temporary, as: object.entry)
            }
            if case .file(let id) = old, store.journal.retainedFiles.contains(id) {
                // The slots may hold the one good copy until the rename is durable.
                try directory.synchronize(dataOnly: false)
                store.journal.forget(file: id)
            }
            count(old)
        } catch {
            take(error, about: object.shownPath)
        }
    }

    // MARK: Directories

    /// Gives every directory of the previous epoch a new secret, the innermost first. So the backing paths of the directories
    /// to come stay valid. Also looks for everything that is still of the previous epoch, or may be, and reports it.
    /// - Returns: the files whose slots in the journal nothing needs. Nil if something is left.
    func rekeyDirectories() throws(StoreError) -> Set<UInt64>? {
        var left = 0
        var unused = store.journal.retainedFiles
        try walk(
            visit: { (object) throws(StoreError) in
                switch try kind(of: object) {
                case .current(let fileID): if let fileID { unused.remove(fileID) }
                case .foreign: return
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
        // A slot may hold the one good record of a file that could not be read.
        return left == 0 && totals.problems == 0 ? unused : nil
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
}
