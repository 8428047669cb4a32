package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultStore

extension VaultFileSystem {
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
