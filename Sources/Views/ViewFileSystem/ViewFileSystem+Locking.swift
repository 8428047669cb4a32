package import FileSystem
internal import LinuxSystem
package import Locking
internal import Synchronization
package import VaultCrypto
internal import ViewFormats

/// Locks and unlocks open files, all of the class complete. Called by the lock controller's thread.
extension ViewFileSystem: LockableFileSystem {
    /// How long an unlock waits for the keys of open files, in seconds. A key command can take much longer.
    private static let keyTimeout = 2

    package var openHandles: Int { handles.load(ordering: .acquiring) }
    package var presentKeys: [String] { source.keys.isClosed ? [] : ["view"] }

    package func setLockController(_ controller: LockController) { lockController.withLock { $0 = controller } }

    package func inodesToDrop() -> [UInt64] {
        var (open, others): ([UInt64], [UInt64]) = ([], [])
        for node in nodes.allLeavesFirst where node !== nodes.root {
            let id = nodes.id(of: node).rawValue
            if node.openFile != nil { open.append(id) } else { others.append(id) }
        }
        return open + others
    }

    package func knownNames() -> [KnownName] {
        nodes.allNames().map { node, name in
            KnownName(
                parent: nodes.id(of: name.parent).rawValue, name: name.entry,
                mayBeInUse: node.isDirectory || node.openFile != nil)
        }
    }

    package func closeDirectories() { _ = directories.removeAll() }

    package func forgetKeys(everything: Bool) -> [String] {
        let present = presentKeys
        source.keys.forget()
        secrets.forget()
        for node in nodes.all { node.openFile?.forgetKeys() }
        closeDirectories()
        // Last, because it can take long, and the lock has a timeout.
        source.keys.waitForLoads()
        return present
    }

    package var needsSecret: Bool { secrets.needsPassphrase }

    package func restoreKeys(_ secret: SecretBytes?) throws(UnlockRefusal) {
        source.keys.reopen(shared: try secrets.restore(secret))
        let open = nodes.all.compactMap(\.openFile)
        for file in open { file.restoreKeys(from: source.keys) }
        let missing = Set(open.filter { !$0.hasKeys }.flatMap(\.keyNames)).union(source.keys.given.map(KeyName.given))
        // Wait for a while, so that programs with open files see no error. A read restores keys that take longer. No other
        // thread does, because the view may be locked again by then.
        let outcomes = Monitor(0)
        let wanted = source.keys.prefetch(Array(missing)) { _, _ in outcomes.update { $0 += 1 } }
        _ = outcomes.wait(until: .now + .seconds(Self.keyTimeout)) { $0 >= wanted ? () : nil }
        for file in open { file.restoreKeys(from: source.keys) }
    }

    package func detachedDirectories(all: Bool) -> [[UInt8]] {
        nodes.directories(all: all).map { [UInt8(ascii: "/")] + path(of: $0) }
    }

    package func attachedDirectories() { nodes.forgetRefusals() }
}
