internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

extension VaultFileSystem {
    package func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let parentNode = try nodes.node(parent)
        do throws(StoreError) {
            try admit(parentNode, .names)
            let directory = try directory(parentNode)
            let found: NodeEntry
            do throws(StoreError) {
                found = try entry(try directory.encode(name).entry, in: directory, parentNode)
            } catch .system(.noSuchFileOrDirectory) {
                try confirmKeys(of: directory, parentNode)
                throw .system(.noSuchFileOrDirectory)
            }
            do throws(StoreError) {
                try admit(try nodes.node(found.id), .opening)
            } catch {
                forget(found.id, count: 1)
                throw error
            }
            return found
        } catch {
            if error == .locked || error == .expired { nodes.noteRefusal(in: parentNode) }
            throw error
        }
    }

    private func entry(_ entry: [UInt8], in directory: OpenDirectory, _ parent: Node) throws(StoreError) -> NodeEntry {
        let status = try directory.status(of: entry)
        let node = nodes.intern(status, parent: parent, entry: entry)
        return NodeEntry(id: nodes.id(of: node), attributes: plaintextAttributes(status, of: node))
    }

    package func forget(_ id: NodeID, count: UInt64) { nodes.forget(id, count: Int(clamping: count)) }

    package func make(
        _ name: [UInt8], in parent: NodeID, _ object: NewObject, for caller: Caller
    ) throws(StoreError) -> NodeEntry {
        switch object {
        case .node(let mode, _) where mode & S_IFMT == S_IFREG:
            let (entry, handle) = try create(name, in: parent, mode: mode, flags: O_RDWR, for: caller)
            release(handle)
            return entry
        case .hardLink(let id): try admit(try nodes.node(id), .opening)
        default: break
        }
        let (parentNode, directory) = try directoryToChange(parent)
        switch object {
        case .directory(let mode): try directory.makeDirectory(name, mode: mode, owner: caller.owner)
        case .link(let target): try directory.makeLink(name, target: target, owner: caller.owner)
        case .node(let mode, let device): try directory.makeNode(name, mode: mode, device: device, owner: caller.owner)
        case .hardLink(let id):
            try atName(of: try nodes.node(id)) { (oldDirectory, entry) throws(StoreError) in
                // The completion walk may already have passed the new name when the old one is removed.
                try moving([try oldDirectory.status(of: entry)]) { () throws(StoreError) in
                    try directory.link(name, to: entry, in: oldDirectory, owner: caller.owner)
                }
            }
        }
        // The change was admitted and has happened. A lock that comes now must not make it an error.
        return try entry(try directory.encode(name).entry, in: directory, parentNode)
    }

    /// The directory in which a name is about to change.
    func directoryToChange(_ parent: NodeID) throws(StoreError) -> (node: Node, directory: OpenDirectory) {
        try store.admitChange()
        let node = try nodes.node(parent)
        try admit(node, .names)
        return (node, try directory(node))
    }

    package func remove(_ name: [UInt8], in parent: NodeID, isDirectory: Bool) throws(StoreError) {
        let (parentNode, directory) = try directoryToChange(parent)
        let encoded = try directory.encode(name)
        let status = try directory.status(of: encoded.entry)
        if isDirectory {
            try keepingIfInUse(status) { () throws(StoreError) in try directory.removeDirectory(encoded) }
            return removed(status, parentNode, encoded.entry)
        }
        let pin = pinIfKnown(encoded.entry, status, in: directory)
        try directory.unlink(encoded)
        removed(status, parentNode, encoded.entry, pin: pin)
    }

    /// Runs `body`, which removes a directory, if there is one. Keeps the directory, because stat(2) of "." must still
    /// work for a program in it.
    private func keepingIfInUse(_ status: stat?, _ body: () throws(StoreError) -> Void) throws(StoreError) {
        guard let status else { return try body() }
        if let node = nodes.find(status), let directory = try? directory(node) {
            node.opening.withLock { $0.removedDirectory = directory }
        }
        do throws(StoreError) { try body() } catch {
            nodes.find(status)?.opening.withLock { $0.removedDirectory = nil }
            throw error
        }
    }

    /// Holds a descriptor of an object that is about to lose a name, until the table knows. Otherwise the store may give its
    /// inode number to the next new file, which would be taken for it. Nil if the kernel does not know the object.
    private func pinIfKnown(_ entry: [UInt8], _ status: stat, in directory: OpenDirectory) -> Descriptor? {
        guard nodes.find(status) != nil else { return nil }
        return try? Descriptor(at: directory.descriptor.fd, entry, flags: linux_O_PATH)
    }

    /// Updates the table after a name was removed from the store.
    /// - Parameters:
    ///   - status: the status before the removal.
    ///   - pin: a descriptor of the object. Nil for a directory.
    private func removed(_ status: stat, _ parent: Node, _ entry: [UInt8], pin: Descriptor? = nil) {
        defer { withExtendedLifetime(pin) {} }
        let node = nodes.find(status)
        if let node {
            // Another of its names may have been removed at the same time, and not every store counts links.
            let isLast = node.isDirectory || status.st_nlink <= 1 || (try? pin?.status().st_nlink) == 0
            nodes.removeName(node, parent: parent, entry: entry, isLast: isLast)
            if node.isDirectory { directories.remove(node) }
            if isLast, let file = node.openFile { store.sealer.forget(file) }
        }
    }

    /// renameat2(2) with flags 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
    package func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError) {
        try store.admitChange()
        guard [0, linux_RENAME_NOREPLACE, linux_RENAME_EXCHANGE].contains(flags) else {
            throw .system(.invalidArgument)
        }
        let oldNode = try nodes.node(parent)
        let newNode = try nodes.node(newParent)
        try admit(oldNode, newNode, .names)
        let oldDirectory = try directory(oldNode)
        let newDirectory = try directory(newNode)
        let encoded = try oldDirectory.encode(name)
        let newEncoded = try newDirectory.encode(newName)
        let source = try oldDirectory.status(of: encoded.entry)
        let target = try? newDirectory.status(of: newEncoded.entry)
        let replaced = target.flatMap { $0.st_mode & S_IFMT == S_IFDIR && flags == 0 ? $0 : nil }
        let pin = target.flatMap { pinIfKnown(newEncoded.entry, $0, in: newDirectory) }
        try keepingIfInUse(replaced) { () throws(StoreError) in
            // In an exchange the target moves too.
            let other = flags == linux_RENAME_EXCHANGE ? target : nil
            try moving([source, other].compactMap(\.self)) { () throws(StoreError) in
                try oldDirectory.rename(encoded, to: newDirectory, as: newEncoded, flags: flags, owner: caller.owner)
            }
        }
        let oldName = NodeName(parent: oldNode, entry: encoded.entry)
        let movedName = NodeName(parent: newNode, entry: newEncoded.entry)
        if let target {
            if FileIdentity(target) == FileIdentity(source) { return }
            if flags == linux_RENAME_EXCHANGE {
                if let node = nodes.find(target) { nodes.moveName(node, from: movedName, to: oldName) }
            } else {
                removed(target, newNode, newEncoded.entry, pin: pin)
            }
        }
        if let node = nodes.find(source) { nodes.moveName(node, from: oldName, to: movedName) }
    }

    package func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] {
        let node = try nodes.node(id)
        try admit(node, .attributes)
        return try atName(of: node) { (directory, entry) throws(StoreError) -> [UInt8] in
            try store.keyRing.linkTarget(ofStored: directory.linkTarget(of: entry)).target
        }
    }
}

extension Caller {
    var owner: Owner? { Owner.needed(uid: uid, gid: gid) }
}
