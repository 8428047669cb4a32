package import FileSystem
internal import Glibc
internal import LinuxSystem
package import Locking
internal import Synchronization
package import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// The table of classes, states and operations (Manual/Locking.md). Operations that it does not check work in every
/// state: fsync, release, forget and statfs, which return no content and change nothing.
extension VaultFileSystem {
    /// The kinds of access to an object.
    enum Access {
        /// Looks up or changes the names in a directory.
        case names
        /// Lists the names in a directory.
        case listing
        /// Finds an object in a directory.
        case finding
        /// Opens a file, or reads a link's target.
        case opening
        /// Reads or changes attributes, or extended attributes that are not encrypted.
        case attributes
        /// Reads or changes encrypted attributes.
        case encryptedAttributes
        /// Uses an open file.
        case handle
    }

    /// Throws `ENOKEY` if the lock refuses the operation, or `EKEYEXPIRED` after the end of the lease.
    @inline(__always)
    func admit(_ node: Node, _ access: Access) throws(StoreError) {
        if gate.isUnlocked() { return }
        try admitWhileLocked(node, access)
    }

    func admitWhileLocked(_ node: Node, _ access: Access) throws(StoreError) {
        // Check this first, because finding the class may need a wiped key.
        guard !gate.isExpired, isAllowedWhileLocked(try protectionClass(of: node), access, of: node) else {
            throw refusal()
        }
    }

    func isAllowedWhileLocked(_ protectionClass: ProtectionClass, _ access: Access, of node: Node) -> Bool {
        // Classes matter only for locks. After the end of the lease everything is refused.
        if gate.isExpired { return false }
        if access == .finding || access == .attributes, arrivals.contains(node.key) { return true }
        return switch protectionClass {
        case .complete: false
        case .unlessOpen:
            switch access {
            case .names, .listing, .finding, .opening: false
            case .attributes, .encryptedAttributes: node.openFile?.isBusy ?? false
            case .handle: true
            }
        case .untilFirstUnlock: gate.hasBeenUnlocked
        case .inbox: gate.hasBeenUnlocked && access != .listing && access != .encryptedAttributes
        case .none: true
        }
    }

    /// Returns true if a directory, opened before, is an inbox and locked. Makes no system call for other directories.
    func isLockedInbox(_ directory: Node) -> Bool { directory.protectionClass == .inbox && !gate.isUnlocked() }

    /// Throws `ENOKEY` if a name of a locked inbox leads to an object from before the lock.
    /// - Parameter finds: true for a lookup, which can also find an inbox in an inbox.
    func admitName(of status: stat, in parent: Node, finds: Bool = false) throws(StoreError) {
        guard isLockedInbox(parent), !arrivals.contains(FileIdentity(status)) else { return }
        if finds, let node = nodes.find(status), node.isDirectory, try protectionClass(of: node) == .inbox { return }
        throw refusal()
    }

    /// Throws `ENOKEY` if an object would get another name in a locked inbox, where it may already have an older one.
    func admitArrival(_ status: stat, in parent: Node) throws(StoreError) {
        let hasNames = status.st_mode & S_IFMT != S_IFDIR && status.st_nlink > 1
        guard hasNames, isLockedInbox(parent), !arrivals.contains(FileIdentity(status)) else { return }
        throw refusal()
    }

    /// Remembers an object that has just got its name in a locked inbox.
    func countArrival(_ status: stat, in parent: Node) {
        guard parent.protectionClass == .inbox else { return }
        let kind: Arrivals.Kind = status.st_mode & S_IFMT == S_IFREG ? .file : .other
        arrivals.insert(FileIdentity(status), kind) { !gate.isUnlocked() }
    }

    var observer: LockController? { lockController.withLock { $0 } }

    /// Counts a refusal, and returns its error.
    func refusal() -> StoreError {
        store.counters.refusedRequests.count()
        observer?.refused()
        return gate.refusal
    }

    /// Returns the class of a node. If the unauthenticated class on disk is one that a lock refuses, it is believed,
    /// because this needs no key. Any other is authenticated.
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
            // The claim is safe, because the same digit selects the key that decrypts the target.
            return try atName(of: node) { (directory, entry) throws(StoreError) in
                ProtectionClass.claimed(byLinkAt: directory, entry) ?? .complete
            }
        default:
            // A special file has its directory's class, like a new file.
            guard let name = nodes.name(of: node) else { return .complete }
            return try protectionClass(of: name.parent).ofNewFiles
        }
    }
}

/// The effects of a lock on open files and directories. Called by the lock thread.
extension VaultFileSystem: LockableFileSystem {
    package var counters: Counters { store.counters }
    package var cache: BlockCache { store.cache }
    package var openHandles: Int { fileHandles.load(ordering: .acquiring) }
    package var writingHandles: Int { writers.load(ordering: .sequentiallyConsistent) }
    package var presentKeys: [String] { store.keyRing.presentClasses.map(\.name) }

    package func setLockController(_ controller: LockController) { lockController.withLock { $0 = controller } }

    package func attachedDirectories() { nodes.forgetRefusals() }

    package var arrivedFiles: Int { arrivals.files }

    package func endArrivals() { arrivals.removeAll() }

    package func beginArrivals() {
        arrivals.begin()
        for node in nodes.all {
            // Skip a file being opened instead of waiting, because the store may not answer.
            guard let file = node.opening.withLockIfAvailable({ $0.file }) ?? nil, file.isBusy,
                let name = nodes.name(of: node), name.parent.protectionClass == .inbox, file.hasWriter
            else { continue }
            arrivals.insert(node.key, node.isBeingMade.load(ordering: .acquiring) ? .file : .inUse) { true }
            // The file was closed meanwhile.
            if !file.isBusy { arrivals.removeInUse(node.key) }
        }
    }

    /// Omits the root, because its attributes are returned in every state. Open files come first, because dropping many
    /// pages takes long, and the other threads should not run out of work before the end.
    package func inodesToDrop() -> [UInt64] {
        var (open, others): ([UInt64], [UInt64]) = ([], [])
        for node in nodes.allLeavesFirst where node !== nodes.root {
            // An inbox's names from before the lock can no longer be found.
            if let known = node.protectionClass, known != .inbox, isAllowedWhileLocked(known, .handle, of: node) {
                // Open files of the class stay available, but closed ones must be purged.
                if known != .unlessOpen || isAllowedWhileLocked(known, .attributes, of: node) { continue }
            }
            let id = nodes.id(of: node).rawValue
            // Count a file being opened as open instead of waiting, because the store may not answer.
            let isOpen = node.opening.withLockIfAvailable { $0.file != nil } ?? true
            if isOpen { open.append(id) } else { others.append(id) }
        }
        return open + others
    }

    package func openInodes() -> [UInt64] { nodes.all.filter { $0.openFile != nil }.map { nodes.id(of: $0).rawValue } }

    package func knownNames() -> [KnownName] {
        nodes.allNames().compactMap { node, name in
            // A file is in use if a program has it open, and not just the sealer. Do not wait, as above.
            let isInUse = node.isDirectory || node.opening.withLockIfAvailable { $0.file?.isBusy ?? false } ?? true
            return plaintextName(name).map {
                KnownName(parent: nodes.id(of: name.parent).rawValue, name: $0, mayBeInUse: isInUse)
            }
        }
    }

    package func detachedDirectories(all: Bool) -> [[UInt8]] {
        nodes.directories(all: all).compactMap { node in
            let names = nodes.path(of: node)
            guard names.first?.parent === nodes.root else { return nil }
            return plaintextPath(names).map { [UInt8(ascii: "/")] + $0 }
        }
    }

    /// Returns the names from the root to a node, joined by `/`, or nil if one does not authenticate.
    func plaintextPath(_ names: [NodeName<Node>]) -> [UInt8]? {
        let path = names.compactMap { plaintextName($0) }
        return path.count == names.count ? Array(path.joined(separator: [UInt8(ascii: "/")])) : nil
    }

    private func plaintextName(_ name: NodeName<Node>) -> [UInt8]? {
        (try? directory(name.parent)).flatMap { plaintextName(of: name.entry, in: $0) }
    }

    /// Closes directories that no request uses. After a lock the kernel looks up names again, and gets new nodes for
    /// forgotten names, so cached directories of the old nodes would be useless.
    package func closeDirectories() {
        _ = directories.removeAll()
        store.lastName.forget()
    }

    package func sealClosed() { store.durability.sealer.sealAll() }

    package var unsealedFiles: (withKeys: Int, withoutKeys: Int) { store.durability.sealer.unsealed }

    package func checkStore() {
        do throws(StoreError) { try store.durability.confirm() } catch { failed(error) }
    }

    package func sealEverything() {
        for node in nodes.all {
            if let file = node.openFile { sealLater(file, of: node) }
        }
        // Make everything durable without a checkpoint, because a lock does not wait for one. Files with changes in the
        // log are sealed later. An error has become a fault by then.
        try? store.durability.activity.during { () throws(StoreError) in
            try store.log.renewIfNeeded()
            try store.log.synchronize()
        }
        store.durability.sealer.sealWaiting()
    }

    package var missingData: [String] { store.isReadOnly || !store.faults.isDataMissing ? [] : store.faults.texts }

    /// Wipes the keys of classes, directories and files that must not outlive a lock. Returns the classes' names.
    /// - Parameter everything: true to wipe all keys, for a lock that allows nothing.
    package func forgetKeys(everything: Bool) -> [String] {
        let before = Set(store.keyRing.presentClasses)
        store.keyRing.beginForgetting(everything: everything)
        // Requests in progress may still have keys.
        gate.drain()
        // Seal arrived and closed files before their keys are wiped.
        if arrivedFiles > 0 { sealClosed() }
        store.keyRing.forget()
        store.lastName.forget()
        // One by one, because an open that waits for the store keeps its node's lock.
        for file in nodes.all.lazy.compactMap(\.openFile) {
            let isInUse = file.protectionClass == .unlessOpen && file.isBusy
            if everything || !file.protectionClass.outlivesLock && !isInUse { file.forgetKeys() }
        }
        for directory in uncachedDirectories + directories.removeAll()
        where everything || !directory.protectionClass.outlivesLock {
            directory.keys.forget()
        }
        return before.subtracting(store.keyRing.presentClasses).map(\.name).sorted()
    }

    /// The open directories outside the cache: the root, those that programs have open, and removed ones.
    private var uncachedDirectories: [OpenDirectory] {
        [rootDirectory] + openDirectories.withLock { $0.values.map(\.directory) }
            + nodes.all.compactMap { node in node.opening.withLock { $0.removedDirectory } }
    }

    package var needsSecret: Bool { true }

    /// - Parameter secret: the master key.
    /// - Throws: `.secretNeeded` without one; `.failed` if the keys cannot be derived.
    package func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal) {
        guard let masterKey = secret else { throw .secretNeeded }
        do throws(VaultError) { try store.keyRing.restore(masterKey: masterKey) } catch {
            throw .failed(error.description)
        }
        for file in nodes.all.compactMap(\.openFile) where !file.hasKeys { try? file.restoreKeys() }
        store.durability.sealer.scheduleRest()
        for directory in uncachedDirectories where directory.keys.isForgotten { try? directory.restoreKeys() }
    }
}
