package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import ViewFormats

extension ViewFileSystem {
    package func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let parentNode = try nodes.node(parent)
        do throws(StoreError) { try admit() } catch {
            nodes.noteRefusal(in: parentNode)
            throw error
        }
        let directory = try directory(parentNode)
        guard source.shows(name, inRoot: parentNode === nodes.root) else { throw .system(.noSuchFileOrDirectory) }
        let status = try directory.status(of: name)
        return entry(status, name, parentNode)
    }

    private func entry(_ status: stat, _ name: [UInt8], _ parent: ViewNode) -> NodeEntry {
        let node = nodes.intern(status, parent: parent, entry: name)
        source.wasLookedUp({ path(of: node) }, name: name)
        return NodeEntry(id: nodes.id(of: node), attributes: plaintextAttributes(status, of: node))
    }

    package func forget(_ id: NodeID, count: UInt64) {
        nodes.forget(id, count: Int(clamping: count))
    }

    /// readlink(2), unchanged. The kernel resolves the target in the mount.
    package func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] {
        let node = try nodes.node(id)
        try admit()
        return try atName(of: node) { (directory, entry) throws(StoreError) -> [UInt8] in
            try directory.linkTarget(of: entry)
        }
    }

    // MARK: Directories

    package func openDirectory(_ id: NodeID) throws(StoreError) -> ViewDirectoryHandle {
        let node = try nodes.node(id)
        try admit()
        let descriptor = try Descriptor(
            at: try directory(node).fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        return ViewDirectoryHandle(node: node, descriptor: descriptor)
    }

    package func release(_ handle: ViewDirectoryHandle) {}

    package func list(
        _ handle: ViewDirectoryHandle, from offset: Int64, withAttributes: Bool, _ take: (ListedEntry) -> Bool
    ) throws(StoreError) {
        try admit()
        let isRoot = handle.node === nodes.root
        let isAtEnd = try list(handle.reader, from: offset, take) { directory, listed in
            guard source.shows(listed.name, inRoot: isRoot) else { return false }
            if !withAttributes { return true }
            // Removed since getdents(2).
            guard let status = try? directory.status(of: listed.name) else { return false }
            let entry = entry(status, listed.name, handle.node)
            (listed.id, listed.attributes) = (entry.id, entry.attributes)
            return true
        }
        if isAtEnd { wasListed(handle.node) }
    }
}
