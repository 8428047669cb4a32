internal import CLinux
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// All nodes known to the kernel, by inode and by node id. The mutex is never held during a system call. Any thread.
///
/// Node ids count up from the root's id and are never used again, because a program can keep a file handle with a node
/// id (name_to_handle_at(2)). Once the kernel has forgotten the node, such a handle leads to nothing, and it reveals
/// nothing about this process's memory.
package final class NodeTable<Item: TableNode>: Sendable {
    private typealias State = NodeTableState

    package let root: Item
    private let state = Mutex(State())

    package init(root: Item) {
        self.root = root
        root.references = 1
        state.withLock { $0.add(root) }
    }

    /// - Throws: `ESTALE` for an unknown id. The kernel itself uses only ids of nodes that it holds.
    package func node(_ id: NodeID) throws(StoreError) -> Item {
        if id == .root { return root }
        guard let node = state.withLock({ $0.byID[id.rawValue] }) else { throw .system(.staleNFSFileHandle) }
        return item(node)
    }

    package func id(of node: Item) -> NodeID { NodeID(node.id) }

    /// Returns the node for an object found under a name, and counts one lookup.
    /// - Parameter isNew: true if the object was just made, so it cannot be a known one that is losing its last name.
    package func intern(_ status: stat, parent: Item, entry: Component, isNew: Bool = false) -> Item {
        let key = FileIdentity(status)
        let kind = status.st_mode & S_IFMT
        return state.withLock { state in
            if let known = state.byKey[key] {
                if known.kind == kind && !(isNew && known.isLeaving) {
                    known.references += 1
                    addName(known, parent, entry, &state)
                    return item(known)
                }
                // Another process has changed the store, and the inode number was reused.
                detach(known, &state)
            }
            let node = Item(key: key, kind: kind)
            node.references = 1
            state.add(node)
            addName(node, parent, entry, isNew: true, &state)
            return node
        }
    }

    package func find(_ status: stat) -> Item? {
        state.withLock { state in state.byKey[FileIdentity(status)].map { item($0) } }
    }

    /// Returns the node's latest name, which is the most likely to be valid.
    package func name(of node: Item) -> NodeName<Item>? { state.withLock { _ in node.names.first.map { name($0) } } }

    /// Returns all names of the node, the latest first.
    package func names(of node: Item) -> [NodeName<Item>] { state.withLock { _ in node.names.all.map { name($0) } } }

    private func addName(
        _ node: TableNode, _ parent: TableNode, _ entry: Component, isNew: Bool = false, _ state: inout State
    ) {
        if node === root { return }
        // A store can show a directory below itself. Its names would form a circle, so the directory keeps the name
        // above. The kernel refuses such a loop (ELOOP, d_splice_alias in fs/dcache.c).
        // A new node has nothing below it, and the latest name was checked before. Most calls end here at any depth.
        if !isNew, node.isDirectory {
            if node.names.first?.isSame(parent, entry) == true || isAtOrAbove(node, parent, &state) { return }
        }
        guard node.names.put(parent, entry, &state.steps) else { return }
        parent.references += 1
        if node.isDirectory {
            // A directory has one name, so another process has moved it away from the older one.
            for old in node.names.removeOthers() { release(old.parent, &state) }
        }
    }

    private func isAtOrAbove(_ node: TableNode, _ other: TableNode, _ state: inout State) -> Bool {
        var current = other
        for _ in 0..<Int(PATH_MAX) {
            state.steps += 1
            if current === node { return true }
            guard let name = current.names.first else { return false }
            current = name.parent
        }
        return false
    }

    /// Records that the node's last name is about to be removed, or with false that it stays. The store may give a
    /// removed inode's number at once to a new file, which must not be mistaken for this one.
    package func setLeaving(_ node: Item, _ isLeaving: Bool) { state.withLock { _ in node.isLeaving = isLeaving } }

    /// Removes a name. `isLast` is true if it was a file's last name, or a directory's.
    package func removeName(_ node: Item, parent: Item, entry: Component, isLast: Bool) {
        state.withLock { state in
            if node.names.remove(parent, entry, &state.steps) { release(parent, &state) }
            if isLast { detach(node, &state) }
        }
    }

    /// Replaces a name after a rename.
    package func moveName(_ node: Item, from: NodeName<Item>, to: NodeName<Item>) {
        state.withLock { state in
            if node.names.remove(from.parent, from.entry, &state.steps) { release(from.parent, &state) }
            addName(node, to.parent, to.entry, &state)
        }
    }

    /// Keeps the node until a `forget`, like a lookup by the kernel. Returns false for a detached node.
    package func retain(_ node: Item) -> Bool {
        state.withLock { _ in
            if node.isDetached { return false }
            node.references += 1
            return true
        }
    }

    /// Returns true for a detached node: its last name was removed, or its inode now is another object's.
    package func hasLeft(_ node: Item) -> Bool { state.withLock { _ in node.isDetached } }

    /// Takes back `count` of the kernel's lookups of the node with this id. Does nothing for the root, which stays.
    package func forget(_ id: NodeID, count: Int) {
        state.withLock { state in
            guard id != .root, let node = state.byID[id.rawValue] else { return }
            release(node, &state, count: count)
        }
    }

    /// Takes back `count` references to a node retained or looked up by the daemon itself.
    package func forget(_ node: Item, count: Int) { state.withLock { release(node, &$0, count: count) } }

    private func release(_ released: TableNode, _ state: inout State, count: Int = 1) {
        var node = released
        node.references -= count
        // Removing a node releases its parents. Do not recurse, because a tree can be deep.
        var pending: [TableNode] = []
        while true {
            if node.references <= 0 && node !== root {
                if state.byKey[node.key] === node { state.byKey[node.key] = nil }
                state.byID[node.id] = nil
                for name in node.names.removeAll() {
                    name.parent.references -= 1
                    pending.append(name.parent)
                }
            }
            guard let next = pending.popLast() else { return }
            node = next
        }
    }

    /// Separates the node from its inode, which has become another object.
    package func disown(_ node: Item) { state.withLock { detach(node, &$0) } }

    private func detach(_ node: TableNode, _ state: inout State) {
        if state.byKey[node.key] === node { state.byKey[node.key] = nil }
        for name in node.names.removeAll() { release(name.parent, &state) }
        node.isDetached = true
    }

    /// All nodes held by the kernel, also those without a name.
    package var all: [Item] { state.withLock { state in state.byID.values.map { item($0) } } }

    /// All nodes held by the kernel, each before the directory that contains it. Directories come last, the deepest
    /// first.
    package var allLeavesFirst: [Item] {
        state.withLock { state in
            var files: [Item] = []
            var directories: [(depth: Int, node: Item)] = []
            for node in state.byID.values {
                if node.isDirectory {
                    directories.append((namesAbove(node, &state).count, item(node)))
                } else {
                    files.append(item(node))
                }
            }
            directories.sort { $0.depth > $1.depth }
            return files + directories.map(\.node)
        }
    }

    /// Returns the names from the root to the node. They start elsewhere if a directory above has no name.
    package func path(of node: Item) -> [NodeName<Item>] {
        state.withLock { state in namesAbove(node, &state).reversed().map { name($0) } }
    }

    /// Returns the path's names in the store, joined by `/`. Empty for the root.
    package func storedPath(of node: Item) -> [UInt8] {
        Array(path(of: node).map(\.entry).joined(separator: [UInt8(ascii: "/")]))
    }

    /// Returns the name of the node and of each directory above it, at most PATH_MAX, because other processes can
    /// change the backing directories so that the names form a circle.
    private func namesAbove(_ node: TableNode, _ state: inout State) -> [NodeName<TableNode>] {
        var names: [NodeName<TableNode>] = []
        var current = node
        while names.count < Int(PATH_MAX), let name = current.names.first {
            names.append(name)
            current = name.parent
        }
        state.steps += names.count
        return names
    }

    /// Adds a directory in which a lookup was refused.
    package func addRefusal(in directory: Item) {
        state.withLock { $0.refusing[ObjectIdentifier(directory)] = directory }
    }

    package func forgetRefusals() { state.withLock { $0.refusing = [:] } }

    /// Returns the directories whose parent has refused a lookup since `forgetRefusals`.
    /// - Parameter all: true to return all directories but the root.
    package func directories(all: Bool) -> [Item] {
        state.withLock { state in
            if state.refusing.isEmpty && !all { return [] }
            return state.byID.values.filter { node in
                guard node.isDirectory, let name = node.names.first else { return false }
                return all || state.refusing[ObjectIdentifier(name.parent)] != nil
            }.map { item($0) }
        }
    }

    /// Returns all names by which the kernel knows nodes.
    package func allNames() -> [(node: Item, name: NodeName<Item>)] {
        state.withLock { state in
            state.byKey.values.flatMap { node in node.names.all.map { (item(node), name($0)) } }
        }
    }

    /// The number of names and directories visited one by one. Tests bound it, because the mutex of all nodes is held
    /// meanwhile.
    package var steps: Int { state.withLock { $0.steps } }

    package var count: Int { state.withLock { $0.byID.count } }

    // The cast is safe, because only `intern` and `init` add nodes, and those are items.
    private func item(_ node: TableNode) -> Item { unsafeDowncast(node, to: Item.self) }

    private func name(_ name: NodeName<TableNode>) -> NodeName<Item> {
        NodeName(parent: item(name.parent), entry: name.entry)
    }
}

/// Opens the objects of nodes: by names and directory descriptors, without following links, and compares each inode.
extension NodeTable {
    /// Returns an O_PATH descriptor of a directory. Walks to it by name from the nearest open ancestor.
    /// - Parameters:
    ///   - opened: returns the descriptor of an open directory. The root is always open.
    ///   - isSame: returns true if a directory with another inode number is still the node's. FAT gives a directory a
    ///     new number once the kernel has dropped the old inode from memory.
    /// - Throws: `ESTALE` if a name on the way leads elsewhere, else `.system` with errno.
    package func descriptor(
        ofDirectory node: Item, opened: (Item) -> Descriptor?, isSame: (Item, Descriptor) -> Bool = { _, _ in false }
    ) throws(StoreError) -> Descriptor {
        var path: [(node: Item, entry: Component)] = []
        var current = node
        while true {
            if let base = opened(current) { return try walk(path.reversed(), from: base, isSame) }
            guard let name = name(of: current) else { throw .system(.staleNFSFileHandle) }
            path.append((node: current, entry: name.entry))
            current = name.parent
        }
    }

    private func walk(
        _ path: ReversedCollection<[(node: Item, entry: Component)]>, from base: Descriptor,
        _ isSame: (Item, Descriptor) -> Bool
    ) throws(StoreError) -> Descriptor {
        var base = base
        for step in path {
            let descriptor: Descriptor
            do {
                descriptor = try Descriptor(at: base, step.entry, flags: linux_O_PATH | O_DIRECTORY)
            } catch .system(let errno) where [.noSuchFileOrDirectory, .notDirectory].contains(errno) {
                throw .system(.staleNFSFileHandle)
            }
            guard FileIdentity(try descriptor.status()) == step.node.key || isSame(step.node, descriptor) else {
                throw .system(.staleNFSFileHandle)
            }
            base = descriptor
        }
        return base
    }

    /// Does the same as `atName`, but without checking the latest name first, because `body` itself throws `ESTALE` if
    /// the entry is another object.
    package func atCheckedName<Result>(
        of node: Item, in directory: (Item) throws(StoreError) -> Descriptor,
        _ body: (Descriptor, Component) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        if let name = name(of: node), let parent = try? directory(name.parent) {
            // Ignore every error, because another object may have the name by now and have caused it.
            if let result = try? body(parent, name.entry) { return result }
        }
        return try atName(of: node, in: directory, body)
    }

    /// Calls `body` with the node's directory and entry there. Tries all its known names.
    /// - Throws: `ESTALE` if the node has lost all of them.
    package func atName<Result>(
        of node: Item, in directory: (Item) throws(StoreError) -> Descriptor,
        _ body: (Descriptor, Component) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        guard let first = name(of: node) else { throw .system(.staleNFSFileHandle) }
        if let parent = parent(of: node, by: first, in: directory) { return try body(parent, first.entry) }
        for name in names(of: node) {
            if let parent = parent(of: node, by: name, in: directory) { return try body(parent, name.entry) }
        }
        throw .system(.staleNFSFileHandle)
    }

    /// Returns the directory in which the node has this name. Nil if it has lost the name.
    private func parent(
        of node: Item, by name: NodeName<Item>, in directory: (Item) throws(StoreError) -> Descriptor
    ) -> Descriptor? {
        guard let parent = try? directory(name.parent), let status = try? parent.status(of: name.entry),
            FileIdentity(status) == node.key
        else { return nil }
        return parent
    }
}

private struct NodeTableState {
    /// The nodes that still belong to their inode.
    var byKey: [FileIdentity: TableNode] = [:]
    /// All nodes held by the kernel, also those without a name.
    var byID: [UInt64: TableNode] = [:]
    /// Directories in which a lookup was refused.
    var refusing: [ObjectIdentifier: TableNode] = [:]
    var steps = 0
    private var lastID: UInt64 = 0

    /// Adds a new node. The first is the root, whose id is 1.
    mutating func add(_ node: TableNode) {
        lastID += 1
        node.id = lastID
        byID[lastID] = node
        byKey[node.key] = node
    }
}
