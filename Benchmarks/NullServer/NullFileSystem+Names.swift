internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Names and attributes.
extension NullFileSystem {
    func lookUp(_ name: [UInt8], in parent: NodeID) throws(StoreError) -> NodeEntry {
        let directory = try node(parent)
        return try tree.withLock { (_) throws(StoreError) in
            guard let node = directory.children[name] else { throw .system(.noSuchFileOrDirectory) }
            return node.entry()
        }
    }

    func forget(_ id: NodeID, count: UInt64) {
        guard id != .root, let node = try? node(id) else { return }
        tree.withLock { _ in node.forget(count) }
    }

    func linkTarget(_ id: NodeID) throws(StoreError) -> [UInt8] {
        let node = try node(id)
        return tree.withLock { _ in node.target }
    }

    func make(
        _ name: [UInt8], in parent: NodeID, _ object: NewObject, for caller: Caller
    ) throws(StoreError) -> NodeEntry {
        func new(_ mode: mode_t) -> NullNode { NullNode(mode: mode, uid: caller.uid, gid: caller.gid) }
        switch object {
        case .directory(let mode): return try add(new(S_IFDIR | mode & 0o7777), as: name, in: parent)
        case .node(let mode, _): return try add(new(mode), as: name, in: parent)
        case .link(let target):
            let node = new(S_IFLNK | 0o777)
            node.target = target
            node.extend(to: UInt64(target.count))
            return try add(node, as: name, in: parent)
        case .hardLink(let id):
            let node = try node(id)
            tree.withLock { _ in node.attributes.st_nlink += 1 }
            return try add(node, as: name, in: parent)
        }
    }

    func remove(_ name: [UInt8], in parent: NodeID, isDirectory: Bool) throws(StoreError) {
        let directory = try node(parent)
        try tree.withLock { (_) throws(StoreError) in try remove(name, from: directory, isDirectory: isDirectory) }
    }

    func rename(
        _ name: [UInt8], in parent: NodeID, to newName: [UInt8], in newParent: NodeID, flags: UInt32,
        for caller: Caller
    ) throws(StoreError) {
        let (source, destination) = (try node(parent), try node(newParent))
        guard flags & ~linux_RENAME_NOREPLACE == 0 else { throw .system(.invalidArgument) }
        try tree.withLock { (_) throws(StoreError) in
            guard let node = source.children[name] else { throw .system(.noSuchFileOrDirectory) }
            if let replaced = destination.children[newName], replaced !== node {
                if flags != 0 { throw .system(.fileExists) }
                try remove(newName, from: destination, isDirectory: node.isDirectory)
            }
            source.children[name] = nil
            destination.children[newName] = node
            guard node.isDirectory else { return }
            source.attributes.st_nlink -= 1
            destination.attributes.st_nlink += 1
        }
    }

    // MARK: Attributes

    func attributes(_ id: NodeID) throws(StoreError) -> stat {
        let node = try node(id)
        return tree.withLock { _ in node.status }
    }

    func change(
        _ id: NodeID, _ changes: AttributeChanges, handle: NullNode?, workspace: NullWorkspace
    ) throws(StoreError) -> stat {
        let node = try node(id)
        if let length = changes.length { node.length.store(length, ordering: .relaxed) }
        return tree.withLock { _ in
            if let mode = changes.mode {
                node.attributes.st_mode = node.attributes.st_mode & S_IFMT | mode & 0o7777
            }
            if let uid = changes.uid { node.attributes.st_uid = uid }
            if let gid = changes.gid { node.attributes.st_gid = gid }
            if let time = changes.accessTime { node.attributes.st_atim = Self.time(time) }
            if let time = changes.modificationTime { node.attributes.st_mtim = Self.time(time) }
            return node.status
        }
    }

    /// Nothing is protected here.
    func dropSetID(_ id: NodeID, for caller: () -> Caller) {}

    private static func time(_ given: timespec) -> timespec {
        guard given.tv_nsec == linux_UTIME_NOW else { return given }
        var now = timespec()
        clock_gettime(CLOCK_REALTIME, &now)
        return now
    }

    func space() -> statvfs {
        var space = statvfs()
        space.f_bsize = 4096
        space.f_frsize = 4096
        space.f_blocks = 1 << 30
        space.f_bfree = space.f_blocks
        space.f_bavail = space.f_blocks
        space.f_namemax = 255
        return space
    }

    // There are no extended attributes. What a vault says of one it has not got, so that the kernel goes on asking alike.

    func attribute(_ id: NodeID, _ name: [UInt8]) throws(StoreError) -> [UInt8] {
        throw .system(.noData)
    }

    func attributeNames(_ id: NodeID) -> [[UInt8]] { [] }

    func setAttribute(_ id: NodeID, _ name: [UInt8], value: [UInt8]?, flags: Int32) throws(StoreError) {
        throw .system(value == nil ? .noData : .notSupported)
    }
}
