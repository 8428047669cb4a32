internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    /// Files and symbolic links of the previous epoch that have several names.
    struct Links {
        /// The paths of those with several names in the vault.
        var sets: [FileIdentity: [[[UInt8]]]] = [:]
        /// Those with one name in the vault, and others outside of it.
        var alone: Set<FileIdentity> = []
    }

    private enum Work: Sendable {
        /// Finds the objects.
        case walk
        case object(RekeyObject)
    }

    // MARK: Survey

    /// Removes the leftovers of interrupted operations, counts the work, and finds the names of each object.
    func lookAround() throws(StoreError) -> Links {
        var seen: [FileIdentity: (paths: [[[UInt8]]], count: Int)] = [:]
        try walk(
            visit: { [self] (object) throws(StoreError) in
                switch try copies.kind(of: object) {
                case .previousFile:
                    survey.files += 1
                    // Holes are not copied.
                    survey.bytes += UInt64(max(0, min(object.status.st_size, object.status.st_blocks * 512)))
                case .previousLink: break
                case .current, .damaged, .foreign: return
                }
                if object.status.st_nlink > 1 {
                    seen[object.identity, default: ([], Int(object.status.st_nlink))].paths.append(object.path)
                }
            },
            leave: { [self] (directory) throws(StoreError) in
                // Only in directories of this vault: another vault may be inside.
                guard directory.record != nil else { return }
                for entry in try directory.leftovers() {
                    try store.admitChange()
                    directory.willChange()
                    OpenDirectory.remove(entry, from: directory.descriptor)
                }
            })
        var links = Links()
        let before = totals
        for (identity, names) in seen {
            let unseen = names.count - names.paths.count
            if unseen > 0 {
                // A name may be in what could not be read. Replacing the others would part it from them.
                guard before.problems == 0 else {
                    shared.problem(
                        shownPath(names.paths[0]),
                        "\(unseen) of its \(names.count) names may be in what could not be read",
                        isDenied: before.denied == before.problems)
                    continue
                }
                shared.count { $0.elsewhere += 1 }
            }
            if names.paths.count > 1 { links.sets[identity] = names.paths } else { links.alone.insert(identity) }
        }
        return links
    }

    /// The path of an object for messages, of backing entries if the directory cannot be opened.
    private func shownPath(_ path: [[UInt8]]) -> [UInt8] {
        guard let entry = path.last, let directory = try? RekeyDirectory.at(path.dropLast(), context) else {
            return Array(path.joined(separator: [UInt8(ascii: "/")]))
        }
        return directory.shownPath(of: entry)
    }

    // MARK: Objects with several names

    /// Replaces them one after the other, by steps that keep all names of an object together.
    func rekeyLinkSets(_ links: Links, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for paths in links.sets.values {
            try shared.check()
            onProgress(totals)
            do throws(StoreError) {
                try rekeyLinkSet(paths, workspace)
            } catch {
                try checkStep(error)
                shared.take(error, about: shownPath(paths[0]))
            }
        }
    }

    private func rekeyLinkSet(_ paths: [[[UInt8]]], _ workspace: Workspace) throws(StoreError) {
        guard let entry = paths[0].last else { return }
        let object = try RekeyObject(entry, in: .at(paths[0].dropLast(), context))
        let temporary = try RekeyContext.temporaryEntry()
        let copied = try copies.copy(
            object, try copies.kind(of: object), to: temporary, in: store.root, workspace, onBytes: shared.countBytes)
        guard let old = copied else { return }
        do throws(StoreError) {
            try intents.carryOut(.links(RekeyIntent.Links(old: old, temporary: temporary, paths: paths)))
        } catch {
            // An incomplete step needs the copy.
            if try !RekeyIntentFile.exists(in: store.root) { store.root.removeQuietly(temporary) }
            throw error
        }
        if case .file(let id) = old { store.journal.forget(file: id) }
        shared.count(old)
    }

    /// Throws an error of a step that ends the rekey: no step can begin while one is incomplete.
    func checkStep(_ error: StoreError) throws(StoreError) {
        if error.endsRekey { throw error }
        if try RekeyIntentFile.exists(in: store.root) { throw error }
    }

    // MARK: Objects with one name

    /// Replaces objects that have one name in the vault, with one thread for each workspace.
    ///
    /// Directories follow only when this is done: a step reserves space, which copies made beside it would take.
    func rekeyFiles(_ links: Links, _ workspaces: [Workspace]) throws(StoreError) {
        let pool = WorkPool<Work>()
        let (context, copies, shared) = (self.context, self.copies, self.shared)
        let replace = { @Sendable (object: RekeyObject, workspace: Workspace) in
            do throws(StoreError) {
                try shared.check()
                let kind = try copies.kind(of: object)
                switch kind {
                case .current: return
                case .foreign: return shared.count { $0.foreign += 1 }
                case .damaged(let reason): throw StoreError.damaged(reason)
                case .previousFile, .previousLink:
                    guard object.status.st_nlink == 1 || links.alone.contains(object.identity) else { return }
                    try Self.replace(object, kind, copies, shared, workspace)
                }
            } catch {
                shared.take(error, about: object.shownPath)
            }
        }
        let bodies = workspaces.map { workspace -> @Sendable (Work) -> Void in
            // Each workspace is used by one thread only.
            nonisolated(unsafe) let workspace = workspace
            return { (work) in
                switch work {
                case .object(let object): replace(object, workspace)
                case .walk:
                    do throws(StoreError) {
                        try shared.walk(
                            context,
                            visit: { (object) throws(StoreError) in
                                if !pool.offer(.object(object)) { replace(object, workspace) }
                            })
                    } catch {
                        shared.take(error, about: [])
                    }
                }
            }
        }
        try pool.run(.walk, bodies) { onProgress(totals) }
        try shared.check()
    }

    private static func replace(
        _ object: RekeyObject, _ kind: RekeyCopies.Kind, _ copies: RekeyCopies, _ shared: Shared,
        _ workspace: Workspace
    ) throws(StoreError) {
        let directory = object.directory.descriptor
        let temporary = try RekeyContext.temporaryEntry()
        object.directory.willChange()
        let copied = try copies.copy(
            object, kind, to: temporary, in: directory, workspace, onBytes: shared.countBytes)
        guard let old = copied else { return }
        do throws(StoreError) {
            try copies.before(.replaceEntry)
            try OpenDirectory.rename(temporary, from: directory.fd, to: directory.fd, as: object.entry, flags: 0)
        } catch {
            directory.removeQuietly(temporary)
            throw error
        }
        if case .file(let id) = old, copies.store.journal.retainedFiles.contains(id) {
            // The slots may hold the one good copy until the rename is durable.
            try directory.synchronize(dataOnly: false)
            copies.store.journal.forget(file: id)
        }
        shared.count(old)
    }
}
