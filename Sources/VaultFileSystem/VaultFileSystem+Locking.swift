package import FileSystem
internal import Glibc
package import Locking
internal import Synchronization
internal import SystemPackage
package import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// The effects of a lock on open files and directories. Called by the lock thread.
extension VaultFileSystem: LockableFileSystem {
    package var counters: Counters { store.counters }
    package var cache: BlockCache { store.cache }
    package var openHandles: Int { fileHandles.load(ordering: .acquiring) }
    package var writingHandles: Int { writers.load(ordering: .sequentiallyConsistent) }
    package var presentKeys: [String] { store.keyRing.presentClasses.map(\.name) }

    package func setLockController(_ controller: LockController) {
        lockController.withLock { $0 = controller }
    }

    package func attachedDirectories() {
        nodes.forgetRefusals()
    }

    /// The root's attributes are returned in every state, so it is left out. Open files come first because many pages take
    /// long, and at the end the other threads have nothing more to do.
    package func inodesToDrop() -> [UInt64] {
        var (open, others): ([UInt64], [UInt64]) = ([], [])
        for node in nodes.allLeavesFirst where node !== nodes.root {
            if let known = node.protectionClass, isAllowedWhileLocked(known, .handle, of: node) {
                // Open files of the class stay available. Closed ones must be purged.
                if known != .unlessOpen || isAllowedWhileLocked(known, .attributes, of: node) { continue }
            }
            let id = nodes.id(of: node).rawValue
            // Do not wait for one that is being opened, because the store may not answer.
            let isOpen = node.opening.withLockIfAvailable { $0.file != nil } ?? true
            if isOpen { open.append(id) } else { others.append(id) }
        }
        return open + others
    }

    /// False only for a file that no program has open. The sealer may have it open. Does not wait, as above.
    private func mayBeInUse(_ node: Node) -> Bool {
        if node.isDirectory { return true }
        let handles = node.opening.withLockIfAvailable { $0.file?.openHandles.load(ordering: .acquiring) ?? 0 }
        return handles != 0
    }

    package func openInodes() -> [UInt64] {
        nodes.all.filter { $0.openFile != nil }.map { nodes.id(of: $0).rawValue }
    }

    package func knownNames() -> [KnownName] {
        nodes.allNames().compactMap { node, name in
            plaintextName(name).map {
                KnownName(parent: nodes.id(of: name.parent).rawValue, name: $0, mayBeInUse: mayBeInUse(node))
            }
        }
    }

    package func detachedDirectories(all: Bool) -> [[UInt8]] {
        nodes.directories(all: all).compactMap { path(of: $0) }
    }

    /// The plaintext path from the root. Nil if a name does not authenticate.
    private func path(of node: Node) -> [UInt8]? {
        let names = nodes.path(of: node)
        guard names.first?.parent === nodes.root else { return nil }
        var path: [UInt8] = []
        for name in names {
            guard let plaintext = plaintextName(name) else { return nil }
            path += [UInt8(ascii: "/")] + plaintext
        }
        return path
    }

    private func plaintextName(_ name: NodeName<Node>) -> [UInt8]? {
        (try? directory(name.parent)).flatMap { plaintextName(of: name.entry, in: $0) }
    }

    /// Closes directories that no request uses. After a lock the kernel looks up names again, and gets new nodes for those
    /// that it forgot. Cached directories of old nodes would not be found.
    package func closeDirectories() {
        _ = directories.removeAll()
    }

    package func sealEverything() {
        for node in nodes.all {
            if let file = node.openFile { sealLater(file, of: node) }
        }
        store.sealer.sealAll()
    }

    /// Wipes the keys that must not outlive a lock: of classes, directories, files. Returns the classes' names.
    /// - Parameter everything: true to wipe all keys, for a lock that allows nothing.
    package func forgetKeys(everything: Bool) -> [String] {
        let before = Set(store.keyRing.presentClasses)
        store.keyRing.beginForgetting(everything: everything)
        // Requests in progress may still have keys.
        gate.drain()
        store.keyRing.forget()
        for node in nodes.all {
            if let removed = node.opening.withLock({ $0.removedDirectory }) { forgetKeys(of: removed, everything) }
            guard let file = node.openFile, everything || !file.protectionClass.outlivesLock else { continue }
            let isInUse = file.protectionClass == .unlessOpen && file.openHandles.load(ordering: .acquiring) > 0
            if everything || !isInUse { file.forgetKeys() }
        }
        forgetKeys(of: rootDirectory, everything)
        for handle in openDirectories.withLock({ Array($0.values) }) { forgetKeys(of: handle.directory, everything) }
        for directory in directories.removeAll() { forgetKeys(of: directory, everything) }
        return before.subtracting(store.keyRing.presentClasses).map(\.name).sorted()
    }

    private func forgetKeys(of directory: OpenDirectory, _ everything: Bool) {
        if everything || !directory.protectionClass.outlivesLock { directory.keys.forget() }
    }

    package var needsSecret: Bool { true }

    /// - Parameter secret: the master key.
    package func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal) {
        guard let masterKey = secret else { throw .secretNeeded }
        do throws(VaultError) { try store.keyRing.restore(masterKey: masterKey) } catch {
            throw .failed(error.description)
        }
        var open = openDirectories.withLock { $0.values.map(\.directory) } + [rootDirectory]
        for node in nodes.all {
            if let removed = node.opening.withLock({ $0.removedDirectory }) { open.append(removed) }
            if let file = node.openFile, !file.hasKeys { try? file.restoreKeys() }
        }
        for directory in open where directory.keys.isForgotten { try? directory.restoreKeys() }
    }
}
