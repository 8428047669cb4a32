internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// One step of a rekey: makes every name of a file or symbolic link lead to the object that replaces it. The step can be
/// undone, and both can be repeated.
struct RekeyLinksStep {
    private struct Name {
        let entry: [UInt8]
        let directory: RekeyDirectory
    }

    let step: RekeyIntent.Links
    let context: RekeyContext

    func perform() throws(StoreError) {
        let new = Name(entry: step.temporary, directory: try .at([], context))
        for path in step.paths {
            guard let name = try name(at: path), try isOld(name) else { continue }
            try replace(name, by: new)
        }
    }

    /// Makes the names that lead to the new object lead to the old one again.
    func undo() throws(StoreError) {
        // Without the new object, the names that were replaced cannot be found. Each name leads to a whole object.
        guard let new = try status(of: step.temporary, in: context.root) else { return }
        // Paths instead of descriptors: there may be more than a process can have open.
        var replaced: [[[UInt8]]] = []
        var old: Name?
        for path in step.paths {
            guard let name = try name(at: path) else { continue }
            if try isOld(name) {
                old = name
            } else if let status = try status(of: name.entry, in: name.directory.descriptor),
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
            return Name(entry: entry, directory: try .at(path.dropLast(), context))
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private func isOld(_ name: Name) throws(StoreError) -> Bool {
        let (entry, directory) = (name.entry, name.directory.descriptor)
        guard let status = try status(of: entry, in: directory) else { return false }
        switch step.old {
        case .link(let stored):
            return status.st_mode & S_IFMT == S_IFLNK ? try directory.linkTarget(of: entry) == stored : false
        case .file(let id):
            guard status.st_mode & S_IFMT == S_IFREG else { return false }
            let file = try Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK)
            return try EncryptedFile.unprovenFileID(of: file) == id
        }
    }

    /// Returns nil if there is no such entry.
    private func status(of entry: [UInt8], in directory: Descriptor) throws(StoreError) -> stat? {
        do throws(StoreError) { return try directory.status(of: entry) } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private func replace(_ name: Name, by object: Name) throws(StoreError) {
        let directory = name.directory.descriptor
        let temporary = try RekeyContext.temporaryEntry()
        try context.before(.linkName)
        name.directory.willChange()
        do throws(StoreError) {
            try object.directory.descriptor.link(object.entry, to: directory, as: temporary)
        } catch .system(.noSuchFileOrDirectory) {
            throw .damaged("vaultfs.rekey: the copy of a file with several names is gone")
        }
        do throws(StoreError) {
            try context.before(.renameLink)
            try OpenDirectory.rename(temporary, from: directory.fd, to: directory.fd, as: name.entry, flags: 0)
        } catch {
            directory.removeQuietly(temporary)
            throw error
        }
        // The names must be on disk before the intent goes.
        try directory.synchronize(dataOnly: false)
    }
}
