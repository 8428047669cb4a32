internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

extension TreeTransfer {
    /// The deepest nesting of directories. Each is open on both sides.
    private static var maximumDepth: Int { 1000 }

    /// Opens the directory at the destination, or makes it.
    func enter(
        _ object: SourceObject<Source.Item>, in directory: Directory, _ workspace: Workspace
    ) throws(TransferFailure) -> Directory {
        guard directory.depth < Self.maximumDepth else {
            throw .entry("more than \(Self.maximumDepth) directories deep")
        }
        let existing = try writing(object.path, try destination.find(object.name, in: directory.destination))
        let made: Destination.Item
        if let existing {
            try open(existing, for: object.path, workspace)
            made = existing
        } else if options.isComparing {
            throw .missing
        } else {
            made = try writing(object.path, try destination.makeDirectory(object.name, in: directory.destination))
        }
        return Directory(
            object.item, made, path: object.path, parent: directory, status: object.status, isNew: existing == nil)
    }

    /// Checks that an existing object is a directory, and makes it writable.
    private func open(
        _ existing: Destination.Item, for path: [UInt8], _ workspace: Workspace
    ) throws(TransferFailure) {
        try writing(path) { () throws(StoreError) in
            let status = try destination.status(of: existing)
            guard status.st_mode & S_IFMT == S_IFDIR else { throw StoreError.system(.fileExists) }
            if options.isComparing { return }
            guard !options.leavesOut(status) else {
                throw StoreError.damaged("the vault or source itself is there, and nothing is put into it")
            }
            // The directory gets its source's mode when all is in it.
            if geteuid() != 0, !options.contentsOnly, status.st_mode & 0o700 != 0o700 {
                try change(existing, workspace) { $0.mode = status.st_mode & 0o7777 | 0o700 }
            }
        }
    }

    /// True if a transfer that has not ended has made the directory.
    func isMarked(_ directory: Destination.Item) throws(StoreError) -> Bool {
        guard let mark = try destination.find(TemporaryName.mark, in: directory) else { return false }
        // Any user who can write to the directory can make a mark. Only our own counts.
        return try destination.status(of: mark).st_uid == geteuid() && destination.isStale(mark)
    }

    /// Removes the mark from a complete destination, and then sets its times again, which that has changed. Until then the
    /// next transfer takes the directory for this transfer's.
    func removeMark(in directory: Directory, _ status: stat, _ workspace: Workspace) throws(TransferFailure) {
        let made = directory.destination
        try writing(directory.path) { () throws(StoreError) in
            let kept = try destination.status(of: made).st_mode & 0o7777
            let isClosed = geteuid() != 0 && kept & 0o300 != 0o300
            // A removal needs write access, so open the directory to its owner for that moment.
            if isClosed { try change(made, workspace) { $0.mode = kept | 0o700 } }
            do throws(StoreError) {
                try destination.remove(TemporaryName.mark, in: made)
            } catch .system(.noSuchFileOrDirectory) {}
            if isClosed { try change(made, workspace) { $0.mode = kept } }
        }
        // A refusal has been counted before.
        try? change(made, workspace) {
            $0.accessTime = status.st_atim
            $0.modificationTime = status.st_mtim
        }
    }

    private func change(
        _ item: Destination.Item, _ workspace: Workspace, _ body: (inout AttributeChanges) -> Void
    ) throws(StoreError) {
        var changes = AttributeChanges()
        body(&changes)
        try destination.change(item, changes, workspace)
    }

    /// Removes unfinished objects of killed transfers. Objects that cannot be seen or removed stay.
    func sweep(_ directory: Directory, includingResumable: Bool = false) {
        guard !directory.isNew, !options.isComparing, var listing = try? destination.list(directory.destination) else {
            return
        }
        while let name = try? destination.next(&listing) {
            guard TemporaryName.isOne(name), name != TemporaryName.mark,
                includingResumable || !TemporaryName.isResumable(name),
                let item = try? destination.find(name, in: directory.destination), destination.isStale(item)
            else { continue }
            try? destination.remove(name, in: directory.destination)
        }
    }
}
