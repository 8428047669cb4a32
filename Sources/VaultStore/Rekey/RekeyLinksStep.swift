internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Has every name of a file or symbolic link lead to the object that takes its place. Or, where that fails, to the old one
/// again. Either may be done any number of times.
struct RekeyLinksStep {
    private struct Name {
        let entry: [UInt8]
        let place: RekeyPlace
        var directory: Descriptor { place.descriptor }
    }

    let step: RekeyIntent.Links
    let notes: RekeyNotes
    let before: RekeyHook
    private var root: Descriptor { notes.root }

    func perform() throws(StoreError) {
        let new = Name(entry: step.temporary, place: try .root(notes))
        for path in step.paths {
            guard let name = try name(at: path), try isOld(name) else { continue }
            try replace(name, by: new)
        }
    }

    /// Has the names that lead to the new object lead to the old one again.
    func undo() throws(StoreError) {
        let new: stat
        do throws(StoreError) { new = try root.status(of: step.temporary) } catch .system(.noSuchFileOrDirectory) {
            // What it was can no longer be told; each name leads to a whole object.
            return
        }
        // Paths, not descriptors: there may be more than a process can have open.
        var replaced: [[[UInt8]]] = []
        var old: Name?
        for path in step.paths {
            guard let name = try name(at: path) else { continue }
            if try isOld(name) {
                old = name
            } else if let status = try status(of: name.entry, in: name.directory),
                status.st_dev == new.st_dev, status.st_ino == new.st_ino
            {
                replaced.append(path)
            }
        }
        // Where every name leads to the new object there is nothing that could not be done.
        guard let old else { return }
        for path in replaced {
            if let name = try name(at: path) { try replace(name, by: old) }
        }
    }

    /// Nil where somebody has removed its directory meanwhile.
    private func name(at path: [[UInt8]]) throws(StoreError) -> Name? {
        guard let entry = path.last else { return nil }
        do throws(StoreError) {
            return Name(entry: entry, place: try RekeyPlace.at(path.dropLast(), notes))
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private func isOld(_ name: Name) throws(StoreError) -> Bool {
        let (entry, directory) = (name.entry, name.directory)
        guard let status = try status(of: entry, in: directory) else { return false }
        switch step.old {
        case .link(let stored):
            return status.st_mode & S_IFMT == S_IFLNK ? try directory.linkTarget(of: entry) == stored : false
        case .file(let id):
            guard status.st_mode & S_IFMT == S_IFREG else { return false }
            let pin = try Descriptor(at: directory.fd, entry, flags: linux_O_PATH)
            return try RekeyClaim(of: notes.reopenForReading(pin, at: name.place.path + [entry]))?.fileID == id
        }
    }

    /// Nil where there is no such entry.
    private func status(of entry: [UInt8], in directory: Descriptor) throws(StoreError) -> stat? {
        do throws(StoreError) { return try directory.status(of: entry) } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
    }

    private func replace(_ name: Name, by object: Name) throws(StoreError) {
        let directory = name.directory
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try before(.linkName)
        try name.place.willChange()
        do throws(StoreError) {
            try withCString(object.entry) { (existing) throws(StoreError) in
                try withCString(temporary) { (new) throws(StoreError) in
                    _ = try retrying { linkat(object.directory.fd, existing, directory.fd, new, 0) }
                }
            }
        } catch .system(.noSuchFileOrDirectory) {
            throw .damaged("vaultfs.rekey: what is to take the place of a file with several names is gone")
        }
        do throws(StoreError) {
            try before(.renameLink)
            try OpenDirectory.rename(temporary, from: directory.fd, to: directory.fd, as: name.entry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
        // Before the intent goes.
        try directory.synchronize(dataOnly: false)
    }
}

/// What the first bytes of a backing file claim, not authenticated.
struct RekeyClaim {
    let epoch: UInt8
    let fileID: UInt64

    /// Nil for what does not begin like a file of a vault.
    init?(of file: Descriptor) throws(StoreError) {
        var start = [UInt8](repeating: 0, count: 16)
        let count = try start.withMutableBytes { (bytes) throws(StoreError) -> Int in
            try file.read(at: 0, into: bytes)
        }
        guard count == start.count, start.starts(with: Array("VFSF".utf8)) else { return nil }
        epoch = start[7]
        fileID = start[8...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }
}
