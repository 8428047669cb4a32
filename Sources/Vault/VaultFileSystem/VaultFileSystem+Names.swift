internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

extension VaultFileSystem {
    /// Timeout for the last closes of files below a directory to be renamed or removed.
    private static let closeTimeout: Duration = .seconds(1)

    package func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let parentNode = try nodes.node(parent)
        do throws(StoreError) {
            try admit(parentNode, .names)
            let directory = try directory(parentNode)
            let found: NodeEntry
            do throws(StoreError) {
                let encoded = try directory.find(name)
                found = try entry(encoded.entry, in: directory, parentNode)
                if encoded.isConflictCopy { countConflictCopy(encoded.entry, in: parentNode) }
            } catch .system(.noSuchFileOrDirectory) {
                try confirmKeys(of: directory, parentNode)
                throw .system(.noSuchFileOrDirectory)
            }
            do throws(StoreError) {
                try admitName(of: found.attributes, in: parentNode, finds: true)
                try admit(try nodes.node(found.id), .finding)
            } catch {
                forget(found.id, count: 1)
                throw error
            }
            return found
        } catch {
            if error == .locked || error == .expired { nodes.addRefusal(in: parentNode) }
            throw error
        }
    }

    private func entry(
        _ entry: Component, in directory: OpenDirectory, _ parent: Node, isNew: Bool = false
    ) throws(StoreError) -> NodeEntry {
        let status = try directory.status(of: entry)
        let node = intern(status, parent: parent, entry: entry, isNew: isNew)
        return NodeEntry(id: nodes.id(of: node), attributes: plaintextAttributes(status, of: node))
    }

    /// Returns the node for an object found under a name, and counts one lookup.
    func intern(_ status: stat, parent: Node, entry: Component, isNew: Bool = false) -> Node {
        let isConflictCopy = parent.isConflictCopy || EntryName.kind(of: entry.bytes) == .conflictCopy
        while true {
            let node = nodes.intern(status, parent: parent, entry: entry, isNew: isNew)
            if node.setConflictCopy(isConflictCopy) { return node }
            // Keep one `EncryptedFile` for an open file, because a second one would not know of its changes.
            if node.openFile != nil, !node.isConflictCopy {
                node.hasCopyName.store(true, ordering: .relaxed)
                return node
            }
            // A sync client has renamed the object.
            nodes.disown(node)
            nodes.forget(node, count: 1)
        }
    }

    package func forget(_ id: NodeID, count: UInt64) { nodes.forget(id, count: Int(clamping: count)) }

    package func make(
        _ name: [UInt8], in parent: NodeID, _ object: NewObject, for caller: Caller
    ) throws(StoreError) -> NodeEntry {
        var linked: Node?
        switch object {
        case .node(let mode, _) where mode & S_IFMT == S_IFREG:
            let (entry, handle) = try create(name, in: parent, mode: mode, flags: O_RDWR, for: caller)
            release(handle)
            return entry
        case .hardLink(let id):
            let node = try nodes.node(id)
            try admitChange(of: node)
            try admit(node, .finding)
            if node.isRegularFile { try markLinked(node) }
            linked = node
        default: break
        }
        let (parentNode, directory) = try directoryToChange(parent)
        if isLockedInbox(parentNode) {
            // The key for link targets may be wiped.
            if case .link = object { throw refusal() }
            // Other names of the object may have been in the inbox before the lock.
            if let linked, !arrivals.contains(linked.key) { throw refusal() }
        }
        try withSpace { () throws(StoreError) in try make(name, in: directory, object, caller.owner) }
        // The change was admitted and has happened, so a lock that begins now must not make it an error.
        let made = try entry(try directory.encode(name).entry, in: directory, parentNode, isNew: linked == nil)
        countArrival(made.attributes, in: parentNode)
        return made
    }

    /// Marks a file that gets another name. A damaged file needs no mark, because it cannot be written. A file made
    /// without its class's key has the mark from the start.
    private func markLinked(_ node: Node) throws(StoreError) {
        do throws(StoreError) {
            try withSpace { () throws(StoreError) in try openFile(node).markLinked() }
        } catch .damaged {
        } catch .locked {
            guard try atName(of: node, StoredHeader.claimsInboxWrap) else { throw .locked }
        }
    }

    private func make(
        _ name: [UInt8], in directory: OpenDirectory, _ object: NewObject, _ owner: Owner?
    ) throws(StoreError) {
        switch object {
        case .directory(let mode): try directory.makeDirectory(name, mode: mode, owner: owner)
        case .link(let target): try directory.makeLink(name, target: target, owner: owner)
        case .node(let mode, let device): try directory.makeNode(name, mode: mode, device: device, owner: owner)
        case .hardLink(let id):
            try atName(of: try nodes.node(id)) { (oldDirectory, entry) throws(StoreError) in
                // When the old name is removed, the completion walk may have passed the new one already.
                try countMove([try oldDirectory.status(of: entry)]) { () throws(StoreError) in
                    try directory.link(name, to: entry, in: oldDirectory, owner: owner)
                }
            }
        }
    }

    /// Returns the directory in which a program wants to make a name.
    func directoryToChange(_ parent: NodeID) throws(StoreError) -> (node: Node, directory: OpenDirectory) {
        let node = try nodes.node(parent)
        try admitChange(of: node)
        try admit(node, .names)
        return (node, try directory(node))
    }

    package func remove(_ name: [UInt8], in parent: NodeID, isDirectory: Bool) throws(StoreError) {
        // Do not use `directoryToChange`, because a conflict copy of a directory allows this too.
        try store.admitChange()
        let parentNode = try nodes.node(parent)
        try admit(parentNode, .names)
        let directory = try directory(parentNode)
        let encoded = try directory.find(name)
        let status = try directory.status(of: encoded.entry)
        try admitName(of: status, in: parentNode)
        let name = NodeName(parent: parentNode, entry: encoded.entry)
        try removeName(name, status, in: directory) { () throws(StoreError) in
            try sealAndRetry(of: status) { () throws(StoreError) in
                // On some stores a removal needs space too (btrfs).
                try withSpace { () throws(StoreError) in
                    if isDirectory { return try directory.removeDirectory(encoded) }
                    try directory.unlink(encoded, mayBeOpen: nodes.find(status)?.openFile != nil)
                }
            }
        }
    }

    /// renameat2(2).
    /// - Throws: `EINVAL` for RENAME_EXCHANGE with another flag, and for a flag unknown to the store. `EXDEV` for a
    ///   conflict copy, so that mv(1) copies it with an id and a secret of its own, and for a directory that would get
    ///   below one with the same secret. `EROFS` to replace a conflict copy.
    package func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError) {
        try store.admitChange()
        let isExchange = flags == linux_RENAME_EXCHANGE
        guard isExchange || flags & ~(linux_RENAME_NOREPLACE | linux_RENAME_WHITEOUT) == 0 else {
            throw .system(.invalidArgument)
        }
        let oldNode = try nodes.node(parent)
        let newNode = try nodes.node(newParent)
        try admit(oldNode, .names)
        try admit(newNode, .names)
        let oldDirectory = try directory(oldNode)
        let newDirectory = try directory(newNode)
        let encoded = try oldDirectory.find(name)
        let newEncoded = try newDirectory.find(newName)
        if oldNode.isConflictCopy || encoded.isConflictCopy { throw .system(.improperLink) }
        try admitChange(of: newNode)
        if newEncoded.isConflictCopy { throw .refused(.readOnlyFileSystem) }
        let source = try oldDirectory.status(of: encoded.entry)
        let target = try? newDirectory.status(of: newEncoded.entry)
        if oldNode !== newNode, source.st_mode & S_IFMT == S_IFDIR, let node = nodes.find(source),
            (try? directory(node)) != nil, repeatsSecret(node, of: [newNode] + nodes.path(of: newNode).map(\.parent))
        {
            throw .system(.improperLink)
        }
        try admitName(of: source, in: oldNode)
        if let target { try admitName(of: target, in: newNode) }
        try admitArrival(source, in: newNode)
        if let target, isExchange { try admitArrival(target, in: oldNode) }
        // Two names of one file both stay (rename(2)).
        let isSame = target.map { FileIdentity($0) == FileIdentity(source) } ?? false
        let exchanged = isExchange && !isSame ? target : nil
        let replaced = !isExchange && flags & linux_RENAME_NOREPLACE == 0 && !isSame ? target : nil
        let oldName = NodeName(parent: oldNode, entry: encoded.entry)
        let movedName = NodeName(parent: newNode, entry: newEncoded.entry)
        try removeName(movedName, replaced, in: newDirectory) { () throws(StoreError) in
            try countMove([source, exchanged].compactMap(\.self)) { () throws(StoreError) in
                try sealAndRetry(of: source) { () throws(StoreError) in
                    try withSpace { () throws(StoreError) in
                        try oldDirectory.rename(
                            encoded, to: newDirectory, as: newEncoded, flags: flags, owner: caller.owner)
                    }
                }
            }
        }
        if isSame { return }
        if let exchanged {
            moved(exchanged, from: movedName, to: oldName)
            countArrival(exchanged, in: oldNode)
        }
        moved(source, from: oldName, to: movedName)
        countArrival(source, in: newNode)
        if flags & linux_RENAME_WHITEOUT != 0, let whiteout = try? oldDirectory.status(of: encoded.entry) {
            countArrival(whiteout, in: oldNode)
        }
    }

    /// Runs a rename or a removal. SMB refuses to rename or remove a directory while a file below it is open, and
    /// closed files stay open here until they are sealed. So after a refusal, seals them and tries again. Also waits
    /// for last closes, because the kernel notifies of them only after close(2) has returned. The caller holds no lock.
    private func sealAndRetry(of status: stat, _ change: () throws(StoreError) -> Void) throws(StoreError) {
        guard status.st_mode & S_IFMT == S_IFDIR, store.refusesReplacingOpenFiles else { return try change() }
        let deadline = ContinuousClock.now + Self.closeTimeout
        // Some tries, because each one may make the directory vanish for a moment.
        var pause: useconds_t = 0
        repeat {
            do throws(StoreError) { return try change() } catch {
                guard [.system(.permissionDenied), .system(.resourceBusy)].contains(error) else { throw error }
            }
            usleep(pause)
            pause = 2 * pause + 50_000
            store.durability.sealer.sealAll()
        } while ContinuousClock.now < deadline
        try change()
    }

    private func moved(_ status: stat, from: NodeName<Node>, to: NodeName<Node>) {
        guard let node = nodes.find(status) else { return }
        nodes.moveName(node, from: from, to: to)
        node.forgetAttributes()
    }

    /// Runs `body`, which removes a name of an object, then updates the table.
    /// - Parameter status: the object's attributes before. Nil if there is no object.
    private func removeName(
        _ name: NodeName<Node>, _ status: stat?, in directory: OpenDirectory, _ body: () throws(StoreError) -> Void
    ) throws(StoreError) {
        guard let status else { return try body() }
        let isLast = status.st_mode & S_IFMT == S_IFDIR || status.st_nlink <= 1
        if let node = nodes.find(status) {
            try removeName(name, of: node, isLast: isLast, in: directory, body)
        } else {
            try body()
        }
        if isLast { arrivals.remove(FileIdentity(status)) }
    }

    private func removeName(
        _ name: NodeName<Node>, of node: Node, isLast: Bool, in directory: OpenDirectory,
        _ body: () throws(StoreError) -> Void
    ) throws(StoreError) {
        // Hold the inode until the table knows, because other threads may remove the other names at the same time. But
        // hold no descriptor of a file with one name, because NFS keeps a removed open file under another name.
        let pin = isLast ? nil : try? Descriptor(at: directory.descriptor, name.entry, flags: linux_O_PATH)
        if isLast {
            // stat(2) of "." must still work for a program in a removed directory.
            if node.isDirectory, let removed = try? self.directory(node) {
                node.opening.withLock { $0.removedDirectory = removed }
            }
            nodes.setLeaving(node, true)
        }
        do throws(StoreError) { try body() } catch {
            if isLast {
                nodes.setLeaving(node, false)
                node.opening.withLock { $0.removedDirectory = nil }
            }
            throw error
        }
        let isDetached = isLast || (try? pin?.status().st_nlink) == 0
        nodes.removeName(node, parent: name.parent, entry: name.entry, isLast: isDetached)
        if node.isDirectory { directories.remove(node) }
        if isDetached, let file = node.openFile { store.durability.sealer.forget(file) }
        node.forgetAttributes()
    }

    package func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] {
        let node = try nodes.node(id)
        try admit(node, .opening)
        return try atName(of: node) { (directory, entry) throws(StoreError) -> [UInt8] in
            try store.keyRing.linkTarget(ofStored: directory.linkTarget(of: entry)).target
        }
    }
}

extension Caller {
    var owner: Owner? { Owner.needed(uid: uid, gid: gid) }
}

extension VaultFileSystem {
    package func openDirectory(_ id: NodeID) throws(StoreError) -> DirectoryHandle {
        let node = try nodes.node(id)
        try admit(node, .names)
        let directory = try directory(node)
        try confirmKeys(of: directory, node)
        let handle = DirectoryHandle(node: node, directory: try directory.reopenedForListing())
        openDirectories.withLock { $0[ObjectIdentifier(handle)] = handle }
        return handle
    }

    package func release(_ handle: DirectoryHandle) {
        _ = openDirectories.withLock { $0.removeValue(forKey: ObjectIdentifier(handle)) }
    }

    package func synchronize(_ handle: DirectoryHandle, dataOnly: Bool) throws(StoreError) {
        try handle.directory.descriptor.synchronize(dataOnly: dataOnly)
    }

    /// Leaves out entries that do not authenticate. Counts and reports those that may belong to the vault.
    package func list(
        _ handle: DirectoryHandle, from offset: Int64, withAttributes: Bool, _ accept: (ListedEntry) -> Bool
    ) throws(StoreError) {
        // Check once for all entries, because each check makes a system call for each lock file.
        let wasUnlocked = gate.isUnlocked()
        if !wasUnlocked { try admitWhileLocked(handle.node, .listing) }
        // Restore the keys first, because without them every name would be hidden.
        if handle.directory.keys.isForgotten { try handle.directory.restoreKeys() }
        try list(handle.reader, from: offset, accept) { (_, entry, listed) throws(StoreError) in
            try fill(entry, &listed, in: handle, withAttributes: withAttributes, wasUnlocked: wasUnlocked)
        }
        try confirmKeys(of: handle.directory, handle.node)
    }

    /// Adds the plaintext name and, if wanted, attributes and node to a listed entry. Returns false to leave it out.
    private func fill(
        _ entry: Component, _ listed: inout ListedEntry, in handle: DirectoryHandle, withAttributes: Bool,
        wasUnlocked: Bool
    ) throws(StoreError) -> Bool {
        let directory = handle.directory
        let kind = EntryName.kind(of: entry.bytes)
        if kind == .temporary { sweep(entry, handle) }
        guard [.name, .longName, .conflictCopy].contains(kind) else { return false }
        guard let name = plaintextName(of: entry, in: directory) else {
            guard isDamaged(entry, in: directory) else { return false }
            store.counters.hiddenNames.count()
            let path = objectPath(of: handle.node, entry: entry)
            damageObserver.notify(Damage("its name is damaged, or of another directory", at: path))
            return false
        }
        listed.name = name
        if kind == .conflictCopy { countConflictCopy(entry, in: handle.node) }
        if !withAttributes { return true }
        do {
            let status = try directory.status(of: entry)
            let node = intern(status, parent: handle.node, entry: entry)
            do throws(StoreError) {
                if !wasUnlocked { try admit(node, .finding) }
                listed.attributes = plaintextAttributes(status, of: node)
                listed.id = nodes.id(of: node)
            } catch {
                // The class hides only the attributes. The kernel asks for them when a program needs them.
                nodes.forget(node, count: 1)
            }
            return true
        } catch .system(.noSuchFileOrDirectory) {
            // The entry was removed since getdents(2).
            return false
        }
    }

    /// Removes a leftover met by a listing, because sweeping the whole tree would make the mount of a large one slow.
    /// The mount sweeps only the root. During the mount, log and slot commands have temporary files there.
    private func sweep(_ entry: Component, _ handle: DirectoryHandle) {
        // Keep another machine's temporary files.
        if handle.node !== nodes.root, (try? store.admitChange()) != nil { handle.directory.removeLeftover(entry) }
    }

    /// Returns true if an entry without an authentic name is the vault's own. Other programs' files are not damage.
    private func isDamaged(_ entry: Component, in directory: OpenDirectory) -> Bool {
        if EntryName.canBeEncrypted(entry.bytes) { return true }
        if EntryName.isShortened(entry.bytes) { return false }
        // Judge an entry once, not at each listing, until its times show a rename or a change. This needs all keys.
        guard gate.isUnlocked(), let status = try? directory.status(of: entry) else { return false }
        let stamp = FileStamp(status)
        if foreignEntries.withLock({ $0.contains(stamp) }) { return false }
        if HiddenName.isDamaged(entry, in: directory.descriptor, keys: directory.keys, store.keyRing) { return true }
        foreignEntries.withLock { known in
            if known.count >= Self.mostForeignEntries { known = [] }
            known.insert(stamp)
        }
        return false
    }

    /// Returns the name of a backing entry, or nil if it does not authenticate.
    func plaintextName(of entry: Component, in directory: OpenDirectory) -> [UInt8]? {
        EntryName.kind(of: entry.bytes) == .conflictCopy
            ? directory.conflictName(of: entry) : directory.descriptor.name(of: entry, directory.keys)
    }
}

/// An open directory and a position in it: the result of opendir(3). Any thread.
package final class DirectoryHandle: Sendable {
    let node: Node
    let directory: OpenDirectory
    let reader: Mutex<DirectoryReader>

    /// - Parameter directory: opened for reading, for this handle only.
    init(node: Node, directory: OpenDirectory) {
        self.node = node
        self.directory = directory
        reader = Mutex(DirectoryReader(directory.descriptor))
    }
}
