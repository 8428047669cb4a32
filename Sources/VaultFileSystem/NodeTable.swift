internal import BackingStore
internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// All nodes that the kernel knows, by inode and by the number it was told. Any thread; the mutex is held for
/// book-keeping only, never for a system call.
final class NodeTable: Sendable {
    private struct State {
        var byKey: [NodeKey: Node] = [:]
        /// Nodes without a name that the kernel still holds.
        var detached: [ObjectIdentifier: Node] = [:]
    }

    let root: Node
    private let state = Mutex(State())

    init(root: Node) {
        self.root = root
        root.references = 1
        state.withLock { $0.byKey[root.key] = root }
    }

    /// The node with this number. The kernel names only nodes that it holds.
    func node(_ id: NodeID) throws(StoreError) -> Node {
        if id == .root { return root }
        guard let pointer = UnsafeRawPointer(bitPattern: UInt(id.rawValue)) else { throw .system(.staleNFSFileHandle) }
        return Unmanaged<Node>.fromOpaque(pointer).takeUnretainedValue()
    }

    func id(of node: Node) -> NodeID {
        node === root ? .root : NodeID(rawValue: UInt64(UInt(bitPattern: Unmanaged.passUnretained(node).toOpaque())))
    }

    /// The node for what was found under a name, counted as looked up once.
    func intern(_ status: stat, parent: Node, entry: [UInt8]) -> Node {
        let key = NodeKey(status)
        let kind = status.st_mode & S_IFMT
        return state.withLock { state in
            if let known = state.byKey[key] {
                if known.kind == kind {
                    known.references += 1
                    addName(known, parent, entry, &state)
                    return known
                }
                // The store was changed behind our back, and the number used again.
                detach(known, &state)
            }
            let node = Node(key: key, kind: kind)
            node.references = 1
            state.byKey[key] = node
            addName(node, parent, entry, &state)
            return node
        }
    }

    func find(_ status: stat) -> Node? {
        state.withLock { $0.byKey[NodeKey(status)] }
    }

    /// One name of the node that may still be right: the first, or the one after `tried` others.
    func name(of node: Node, after tried: Int = 0) -> NodeName? {
        state.withLock { _ in tried < node.names.count ? node.names[tried] : nil }
    }

    func addName(_ node: Node, parent: Node, entry: [UInt8]) {
        state.withLock { state in addName(node, parent, entry, &state) }
    }

    private func addName(_ node: Node, _ parent: Node, _ entry: [UInt8], _ state: inout State) {
        if node === root { return }
        if node.names.contains(where: { $0.parent === parent && $0.entry == entry }) { return }
        if node.isDirectory && !node.names.isEmpty {
            // A directory has one name; an older one was moved away behind our back.
            let old = node.names
            node.names = []
            for name in old { release(name.parent, &state) }
        }
        parent.references += 1
        node.names.append(NodeName(parent: parent, entry: entry))
    }

    /// A name is gone; `isLast` tells that it was the file's last, or a directory's.
    func removeName(_ node: Node, parent: Node, entry: [UInt8], isLast: Bool) {
        state.withLock { state in
            if let index = node.names.firstIndex(where: { $0.parent === parent && $0.entry == entry }) {
                node.names.remove(at: index)
                release(parent, &state)
            }
            if isLast { detach(node, &state) }
        }
    }

    /// A name has become another.
    func moveName(_ node: Node, from: NodeName, to: NodeName) {
        state.withLock { state in
            if let index = node.names.firstIndex(where: { $0.parent === from.parent && $0.entry == from.entry }) {
                node.names.remove(at: index)
                release(from.parent, &state)
            }
            addName(node, to.parent, to.entry, &state)
        }
    }

    /// Keeps the node until a `forget`, as a lookup of the kernel's does.
    func retain(_ node: Node) {
        state.withLock { _ in node.references += 1 }
    }

    /// The kernel has dropped `count` of its lookups.
    func forget(_ node: Node, count: Int) {
        state.withLock { state in
            node.references -= count
            dropIfUnused(node, &state)
        }
    }

    private func release(_ node: Node, _ state: inout State) {
        node.references -= 1
        dropIfUnused(node, &state)
    }

    private func dropIfUnused(_ unused: Node, _ state: inout State) {
        var node = unused
        // A node that goes lets go of its parents; a deep tree must not become deep recursion.
        var pending: [Node] = []
        while true {
            if node.references <= 0 && node !== root {
                if state.byKey[node.key] === node { state.byKey[node.key] = nil }
                state.detached[ObjectIdentifier(node)] = nil
                for name in node.names {
                    name.parent.references -= 1
                    pending.append(name.parent)
                }
                node.names = []
            }
            guard let next = pending.popLast() else { return }
            node = next
        }
    }

    /// The inode is no longer what this node stands for.
    func disown(_ node: Node) {
        state.withLock { detach(node, &$0) }
    }

    private func detach(_ node: Node, _ state: inout State) {
        if state.byKey[node.key] === node { state.byKey[node.key] = nil }
        for name in node.names { release(name.parent, &state) }
        node.names = []
        node.isDetached = true
        if node.references > 0 { state.detached[ObjectIdentifier(node)] = node }
    }

    /// All nodes that the kernel holds, also those without a name.
    var all: [Node] { state.withLock { Array($0.byKey.values) + Array($0.detached.values) } }

    /// All names by which the kernel knows nodes.
    func allNames() -> [NodeName] { state.withLock { $0.byKey.values.flatMap(\.names) } }

    /// How many nodes the kernel holds.
    var count: Int { state.withLock { $0.byKey.count + $0.detached.count } }
}
