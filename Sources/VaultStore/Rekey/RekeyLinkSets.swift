internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Files and links with several names in the vault.
extension Rekeyer {
    /// The files and links of the previous epoch that have several names: the number of names, and the paths of
    /// those in the vault. With one path, the others are outside of the vault.
    typealias Names = [FileIdentity: (count: Int, paths: [[[UInt8]]])]

    /// Removes each object of which a name may be in what could not be read: replacing the others would part it from them.
    func checkNames(_ names: inout Names) {
        let before = totals
        for (identity, (count, paths)) in names where count > paths.count {
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
    }

    /// Replaces them one after the other, by steps that keep all names of an object together.
    func rekeyLinkSets(_ names: Names, _ workspaces: [Workspace]) throws(StoreError) {
        guard let workspace = workspaces.first else { preconditionFailure("internal error: no workspace") }
        for (_, paths) in names.values where paths.count > 1 {
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
        count(old)
    }

    /// The path of an object for messages, of backing entries if the directory cannot be opened.
    private func shownPath(_ path: [[UInt8]]) -> [UInt8] {
        guard let entry = path.last, let directory = try? steps.directory(at: path.dropLast()) else {
            return Array(path.joined(separator: [UInt8(ascii: "/")]))
        }
        return directory.shownPath(of: entry)
    }
}

/// One step of a rekey: makes every name of a file or symbolic link lead to the object that replaces it. The step can be
/// undone, and both can be repeated.
struct RekeyLinksStep {
    private typealias Name = (entry: [UInt8], directory: RekeyDirectory)

    let step: RekeyIntent.Links
    let steps: RekeySteps

    func perform() throws(StoreError) {
        let new = (entry: step.temporary, directory: try steps.directory(at: []))
        for path in step.paths {
            if let name = try name(at: path), try isOld(name) { try replace(name, by: new) }
        }
    }

    /// Makes the names that lead to the new object lead to the old one again.
    func undo() throws(StoreError) {
        // Without the new object, the names that were replaced cannot be found. Each name leads to a whole object.
        guard let new = try steps.root.statusIfPresent(of: step.temporary) else { return }
        // Paths instead of descriptors: there may be more than a process can have open.
        var replaced: [[[UInt8]]] = []
        var old: Name?
        for path in step.paths {
            guard let name = try name(at: path) else { continue }
            if try isOld(name) {
                old = name
            } else if let status = try name.directory.descriptor.statusIfPresent(of: name.entry),
                FileIdentity(status) == FileIdentity(new)
            {
                replaced.append(path)
            }
        }
        // If every name leads to the new object, the step is done.
        guard let old else { return }
        for path in replaced {
            if let name = try name(at: path) { try replace(name, by: old) }
        }
    }

    /// Returns nil if the directory has been removed meanwhile.
    private func name(at path: [[UInt8]]) throws(StoreError) -> Name? {
        guard let entry = path.last else { return nil }
        do throws(StoreError) {
            return (entry, try steps.directory(at: path.dropLast()))
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private func isOld(_ name: Name) throws(StoreError) -> Bool {
        let (entry, directory) = (name.entry, name.directory.descriptor)
        guard let status = try directory.statusIfPresent(of: entry) else { return false }
        switch (step.old, status.st_mode & S_IFMT) {
        case (.link(let stored), S_IFLNK): return try directory.linkTarget(of: entry) == stored
        case (.file(let id), S_IFREG):
            let file = try Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK)
            return try EncryptedFile.unprovenFileID(of: file) == id
        default: return false
        }
    }

    private func replace(_ name: Name, by object: Name) throws(StoreError) {
        let directory = name.directory.descriptor
        let temporary = try VaultDirectory.temporaryEntry()
        try steps.before(.linkName)
        name.directory.willChange()
        do throws(StoreError) {
            try object.directory.descriptor.link(object.entry, to: directory, as: temporary)
        } catch .system(.noSuchFileOrDirectory) {
            throw .damaged("vaultfs.rekey: the copy of a file with several names is gone")
        }
        try directory.withTemporary(temporary) { () throws(StoreError) in
            try steps.before(.renameLink)
            try directory.rename(temporary, as: name.entry)
        }
        // The names must be on disk before the intent goes.
        try directory.synchronize(dataOnly: false)
    }
}
