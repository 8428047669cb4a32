internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// One step of a rekey: moves every name of a file or symbolic link to the object that replaces it. The step can be
/// undone, and both can be repeated.
struct RekeyLinksStep {
    private typealias Name = (entry: Component, directory: RekeyDirectory)

    let step: RekeyIntent.Links
    let steps: RekeySteps

    func perform() throws(StoreError) {
        let new = (entry: step.temporary, directory: try steps.directory(at: []))
        for path in step.paths {
            if let name = try name(at: path), try isOld(name) { try replace(name, by: new) }
        }
    }

    /// Moves the names of the new object back to the old one.
    func undo() throws(StoreError) {
        // Without the new object, replaced names cannot be found. But each name leads to a whole object.
        guard let new = try steps.root.statusIfPresent(of: step.temporary) else { return }
        var old: Name?
        for path in step.paths where old == nil {
            if let name = try name(at: path), try isOld(name) { old = name }
        }
        // The step is complete, because every name leads to the new object.
        guard let old else { return }
        for path in step.paths {
            guard let name = try name(at: path),
                let status = try name.directory.descriptor.statusIfPresent(of: name.entry),
                FileIdentity(status) == FileIdentity(new)
            else { continue }
            try replace(name, by: old)
        }
    }

    /// Returns the name at a path, or nil if the directory has been removed meanwhile.
    private func name(at path: [Component]) throws(StoreError) -> Name? {
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
            let file = try Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK)
            return try StoredHeader.unprovenFileID(of: file) == id
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
        }
        try directory.replace(name.entry, by: temporary)
        // Sync the names before the intent is removed.
        try directory.synchronize(dataOnly: false)
    }
}
