internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import VaultFormat
internal import VaultStore

/// The table of classes, states and operations (Manual/Locking.md). Operations that are not checked here work in every
/// state: fsync, release, forget and statfs, which return no content and change nothing.
extension VaultFileSystem {
    /// The use that an operation makes of an object.
    enum Access {
        /// Looks up, lists or changes the names in a directory.
        case names
        /// Opens a file.
        case opening
        /// Reads or changes attributes, extended attributes or a link's target.
        case attributes
        /// Uses an open file.
        case handle
    }

    /// Throws `ENOKEY` if the lock refuses the operation, or `EKEYEXPIRED` after the end of the lease.
    @inline(__always)
    func admit(_ node: Node, _ access: Access) throws(StoreError) {
        if gate.isUnlocked() { return }
        try admitWhileLocked(node, access)
    }

    /// As `admit`, for an open file. Also reads keys that could not be read at the unlock. A failure is damage: `EIO`, not
    /// `ENOKEY`.
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
        // First, because finding the class may need a key that was wiped.
        if gate.isExpired { throw refusal() }
        guard isAllowedWhileLocked(try protectionClass(of: node), access, of: node) else { throw refusal() }
    }

    func isAllowedWhileLocked(_ protectionClass: ProtectionClass, _ access: Access, of node: Node) -> Bool {
        // Classes matter only for locks. After the end of the lease nothing is allowed.
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

    var observer: LockController? { lockController.withLock { $0 } }

    /// Counts a refusal, and returns its error.
    func refusal() -> StoreError {
        store.counters.refusedRequests.count()
        observer?.refused()
        return gate.refusal
    }

    /// Admits the attributes of an entry that was found in a directory.
    func admitFound(_ node: Node) throws(StoreError) {
        try admit(node, .opening)
    }

    /// The class of a node. A claimed class that a lock refuses needs no key and is believed as it is on disk. Any other is
    /// authenticated.
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
            // The same digit selects the key that decrypts the target.
            return try atName(of: node) { (directory, entry) throws(StoreError) in
                ProtectionClass.claimed(byLinkAt: directory, entry) ?? .complete
            }
        default:
            // A special file has its directory's class.
            guard let name = nodes.name(of: node) else { return .complete }
            return try protectionClass(of: name.parent)
        }
    }
}
