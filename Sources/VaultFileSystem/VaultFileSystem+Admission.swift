internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// The table of classes, states and operations (Manual/Locking.md). What is not asked here goes on in every state: fsync,
/// release, forget, statfs, which give out and change nothing.
extension VaultFileSystem {
    /// How an operation uses an object.
    enum Access {
        /// Looks up, lists or changes the names in a directory.
        case names
        /// Opens a file.
        case opening
        /// Reads or changes what is no content: attributes, extended attributes, a link's target.
        case attributes
        /// Goes through an open file.
        case handle
    }

    /// Lets the operation pass, or throws `ENOKEY`, or `EKEYEXPIRED` where the vault is locked for that.
    @inline(__always)
    func admit(_ node: Node, _ access: Access) throws(StoreError) {
        if gate.isUnlocked() { return }
        try admitWhileLocked(node, access)
    }

    /// As `admit`, for what goes through an open file. Keys that could not be read when the vault was unlocked are read
    /// now, or it is damage: `EIO`, not `ENOKEY`.
    @inline(__always)
    func admit(_ handle: FileHandle) throws(StoreError) {
        try admit(handle.node, .handle)
        if !handle.file.hasKeys { try handle.file.restoreKeys() }
    }

    /// As `admit`, for an operation on names of two directories.
    func admit(_ first: Node, _ second: Node, _ access: Access) throws(StoreError) {
        if gate.isUnlocked() { return }
        try admitWhileLocked(first, access)
        try admitWhileLocked(second, access)
    }

    private func admitWhileLocked(_ node: Node, _ access: Access) throws(StoreError) {
        // Before the class is looked for, which may take a key that has gone.
        if gate.isExpired { throw refusal() }
        guard isAllowedWhileLocked(try protectionClass(of: node), access, of: node) else { throw refusal() }
    }

    func isAllowedWhileLocked(_ protectionClass: ProtectionClass, _ access: Access, of node: Node) -> Bool {
        // The classes say what a lock leaves. The end of the right to open the vault leaves nothing.
        if gate.isExpired { return false }
        return switch protectionClass {
        case .complete: false
        case .unlessOpen:
            switch access {
            case .names, .opening: false
            case .attributes: (node.openFile?.openHandles.load(ordering: .acquiring) ?? 0) > 0
            case .handle: true
            }
        case .untilFirstUnlock: gate.hasBeenUnlocked
        case .none: true
        }
    }

    var observer: (any LockObserver)? { lockObserver.withLock { $0 } }

    /// A refusal, counted.
    func refusal() -> StoreError {
        store.counters.refusedRequests.count()
        observer?.refused()
        return gate.refusal
    }

    /// An entry that was found in a directory whose names may be told: whether its attributes may.
    func admitFound(_ node: Node) throws(StoreError) {
        try admit(node, .opening)
    }

    /// The class of what a node is. One that a lock refuses is believed as it stands on disk, and needs no key; any other
    /// is authenticated.
    func protectionClass(of node: Node) throws(StoreError) -> ProtectionClass {
        if let known = node.protectionClass { return known }
        switch node.kind {
        case S_IFDIR:
            let claimed = ProtectionClass.claimed(byDirectory: try pinDirectory(node))
            return claimed?.outlivesLock == true ? try directory(node).protectionClass : claimed ?? .complete
        case S_IFREG:
            let claimed = try atName(of: node) { (directory, entry) throws(StoreError) in
                ProtectionClass.claimed(inFileAt: directory, entry, store.accessTimes)
            }
            return claimed?.outlivesLock == true ? try openFile(node).protectionClass : claimed ?? .complete
        case S_IFLNK:
            // The key that reads the target is chosen by the same digit.
            return try atName(of: node) { (directory, entry) throws(StoreError) in
                ProtectionClass.claimed(byLinkAt: directory, entry) ?? .complete
            }
        default:
            // What has no content of ours is as its directory.
            guard let name = nodes.name(of: node) else { return .complete }
            return try protectionClass(of: name.parent)
        }
    }
}
