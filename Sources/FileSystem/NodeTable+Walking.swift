internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage

/// Opens the objects of nodes: by names and directory descriptors, without following links, and compares each inode.
extension NodeTable {
    /// An O_PATH descriptor of a directory. Walks to it by name from the nearest open ancestor.
    /// - Parameter opened: returns the descriptor of an open directory. The root is always open.
    package func descriptor(
        ofDirectory node: Item, opened: (Item) -> Descriptor?
    ) throws(StoreError) -> Descriptor {
        var path: [(node: Item, entry: [UInt8])] = []
        var current = node
        while true {
            if let base = opened(current) { return try walk(path.reversed(), from: base) }
            guard let name = name(of: current) else { throw .system(.staleNFSFileHandle) }
            path.append((node: current, entry: name.entry))
            current = name.parent
        }
    }

    private func walk(
        _ path: ReversedCollection<[(node: Item, entry: [UInt8])]>, from base: Descriptor
    ) throws(StoreError) -> Descriptor {
        var base = base
        for step in path {
            let descriptor: Descriptor
            do {
                descriptor = try Descriptor(at: base.fd, step.entry, flags: linux_O_PATH | O_DIRECTORY)
            } catch .system(let errno) where [.noSuchFileOrDirectory, .notDirectory].contains(errno) {
                throw .system(.staleNFSFileHandle)
            }
            guard FileIdentity(try descriptor.status()) == step.node.key else { throw .system(.staleNFSFileHandle) }
            base = descriptor
        }
        return base
    }

    /// Calls `body` with a directory and an entry under which the node is. Tries all its known names.
    /// - Throws: `ESTALE` if it has none of them any more.
    package func atName<Result>(
        of node: Item, in directory: (Item) throws(StoreError) -> Descriptor,
        _ body: (Descriptor, [UInt8]) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        guard let first = name(of: node) else { throw .system(.staleNFSFileHandle) }
        if let parent = parent(of: node, by: first, in: directory) { return try body(parent, first.entry) }
        for name in names(of: node) {
            if let parent = parent(of: node, by: name, in: directory) { return try body(parent, name.entry) }
        }
        throw .system(.staleNFSFileHandle)
    }

    /// The directory in which the node has this name. Nil if it no longer has it.
    private func parent(
        of node: Item, by name: NodeName<Item>, in directory: (Item) throws(StoreError) -> Descriptor
    ) -> Descriptor? {
        guard let parent = try? directory(name.parent), let status = try? parent.status(of: name.entry),
            FileIdentity(status) == node.key
        else { return nil }
        return parent
    }
}
