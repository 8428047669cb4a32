package import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultStore

extension VaultFileSystem {
    /// fstat(2) of a node, also of an open one without a name.
    package func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try nodes.node(id)
        // The root's attributes are available in every state, because tools look at mountpoints.
        if node !== nodes.root { try admit(node, .attributes) }
        return try attributes(of: node)
    }

    func attributes(of node: Node) throws(StoreError) -> stat {
        if node === nodes.root { return try store.root.status() }
        if let file = node.openFile { return plaintextAttributes(try file.reader.status(), of: node) }
        if node.isDirectory { return try directoryStatus(node) }
        let status = try atName(of: node) { (directory, entry) throws(StoreError) -> stat in
            let status = try directory.status(of: entry)
            // Another object may have been given the name since.
            guard FileIdentity(status) == node.key else { throw .system(.staleNFSFileHandle) }
            return status
        }
        return plaintextAttributes(status, of: node)
    }

    /// Needs no keys, so a directory with a damaged record has attributes too.
    private func directoryStatus(_ node: Node) throws(StoreError) -> stat {
        if let known = directories.find(node) ?? node.opening.withLock({ $0.removedDirectory }) {
            return try known.descriptor.status()
        }
        return try atName(of: node) { (directory, entry) throws(StoreError) -> stat in
            try directory.status(of: entry)
        }
    }

    /// chmod(2), chown(2), truncate(2), utimensat(2), or several of them at once.
    package func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: FileHandle?, workspace: Workspace
    ) throws(StoreError) -> stat {
        try store.admitChange()
        let node = try nodes.node(id)
        if let handle { try admit(handle) } else { try admit(node, .attributes) }
        if let length = changes.length { try setLength(node, length, handle, workspace) }
        let pinned = if let handle { handle.file.anyDescriptor } else { try pin(node) }
        try excludingSeals(of: node) { () throws(StoreError) in try changes.apply(to: pinned, kind: node.kind) }
        return plaintextAttributes(try pinned.status(), of: node)
    }

    /// As `EncryptedFile.excludingSeals` if the file is open.
    func excludingSeals(of node: Node, _ body: () throws(StoreError) -> Void) throws(StoreError) {
        guard let file = node.openFile else { return try body() }
        try file.excludingSeals(body)
    }

    private func setLength(
        _ node: Node, _ length: UInt64, _ handle: FileHandle?, _ workspace: Workspace
    ) throws(StoreError) {
        if let handle { return try handle.file.setLength(length, workspace: workspace) }
        let temporary = self.handle(
            length == 0 ? try openTruncated(node, workspace) : try openFile(node), node, flags: O_RDWR)
        defer { release(temporary) }
        if length > 0 { try temporary.file.setLength(length, workspace: workspace) }
    }

    // MARK: Set-id bits

    package func dropSetID(_ id: NodeID, for caller: () -> Caller) throws(StoreError) {
        let node = try nodes.node(id)
        guard node.isRegularFile, !store.isReadOnly else { return }
        let pinned = try pin(node)
        // Check this first, because hardly any file has such a bit. The change itself is admitted anyway.
        guard try pinned.status().st_mode & (S_ISUID | S_ISGID) != 0 else { return }
        try admit(node, .attributes)
        if try dropSetID(node, pinned, for: caller) {
            // The reply contains no attributes.
            attributeObserver.withLock { $0 }?(id.rawValue)
        }
    }

    /// Returns true if a bit was cleared. A setgid bit without group execution stays for members of the group.
    @discardableResult
    func dropSetID(_ node: Node, _ pinned: Descriptor, for caller: () -> Caller) throws(StoreError) -> Bool {
        // A seal in progress would restore the bits.
        guard let file = node.openFile else { return try clearSetID(node, pinned, for: caller) }
        return try file.excludingSeals { () throws(StoreError) in try clearSetID(node, pinned, for: caller) }
    }

    private func clearSetID(
        _ node: Node, _ pinned: Descriptor, for caller: () -> Caller
    ) throws(StoreError) -> Bool {
        let status = try pinned.status()
        guard status.st_mode & (S_ISUID | S_ISGID) != 0 else { return false }
        var changes = AttributeChanges()
        changes.mode = Self.modeWithoutSetID(status, caller())
        if changes.mode == status.st_mode & 0o7777 { return false }
        try changes.apply(to: pinned, kind: node.kind)
        return true
    }

    private static func modeWithoutSetID(_ status: stat, _ caller: Caller) -> mode_t {
        let mode = status.st_mode & 0o7777 & ~S_ISUID
        let isMember = caller.gid == status.st_gid || caller.groups.contains(status.st_gid)
        return mode & S_IXGRP != 0 || !isMember ? mode & ~S_ISGID : mode
    }
}
