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
            refusedLookups.insert(parentNode)
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
        try handle.reader.withLock { (reader) throws(StoreError) in
            try reader.seek(to: offset)
            while let found = try reader.nextWithDots() {
                var attributes = stat()
                attributes.st_ino = ino_t(found.inode)
                attributes.st_mode = mode_t(found.type) << 12  // DTTOIF, readdir(3)
                var listed = ListedEntry(name: found.name, attributes: attributes, nextOffset: found.nextOffset)
                let isDot = found.name == [UInt8(ascii: ".")] || found.name == Array("..".utf8)
                if !isDot {
                    guard source.shows(found.name, inRoot: isRoot) else { continue }
                    if withAttributes {
                        // Removed since getdents(2).
                        guard let status = try? reader.directory.status(of: found.name) else { continue }
                        let entry = entry(status, found.name, handle.node)
                        (listed.id, listed.attributes) = (entry.id, entry.attributes)
                    }
                }
                if take(listed) { continue }
                if let id = listed.id { forget(id, count: 1) }
                return reader.putBack()
            }
            wasListed(handle.node)
        }
    }
}
