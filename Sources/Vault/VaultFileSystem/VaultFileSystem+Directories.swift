package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

extension VaultFileSystem {
    package func openDirectory(_ id: NodeID) throws(StoreError) -> DirectoryHandle {
        let node = try nodes.node(id)
        try admit(node, .names)
        let directory = try directory(node)
        try confirmKeys(of: directory, node)
        let handle = DirectoryHandle(node: node, directory: try directory.reopenedForListing())
        openDirectories.withLock { $0[ObjectIdentifier(handle)] = handle }
        return handle
    }

    package func release(_ handle: DirectoryHandle) {
        _ = openDirectories.withLock { $0.removeValue(forKey: ObjectIdentifier(handle)) }
    }

    package func synchronize(_ handle: DirectoryHandle, dataOnly: Bool) throws(StoreError) {
        try handle.directory.descriptor.synchronize(dataOnly: dataOnly)
    }

    /// Entries that do not authenticate are left out. Those that may belong to the vault are counted and reported.
    package func list(
        _ handle: DirectoryHandle, from offset: Int64, withAttributes: Bool, _ accept: (ListedEntry) -> Bool
    ) throws(StoreError) {
        // Once for all entries, because each check is a system call for each lock file.
        let wasUnlocked = gate.isUnlocked()
        if !wasUnlocked { try admitWhileLocked(handle.node, .listing) }
        // Without keys every name would be hidden.
        if handle.directory.keys.isForgotten { try handle.directory.restoreKeys() }
        try list(handle.reader, from: offset, accept) { (_, listed) throws(StoreError) in
            try complete(&listed, in: handle, withAttributes: withAttributes, wasUnlocked: wasUnlocked)
        }
        try confirmKeys(of: handle.directory, handle.node)
    }

    /// Sets the plaintext name, and the attributes and the node if they are wanted. Returns false to leave the entry out.
    private func complete(
        _ listed: inout ListedEntry, in handle: DirectoryHandle, withAttributes: Bool, wasUnlocked: Bool
    ) throws(StoreError) -> Bool {
        let (entry, directory) = (listed.name, handle.directory)
        let kind = EntryName.kind(of: entry)
        if kind == .temporary { sweep(entry, handle) }
        guard [.name, .longName, .conflictCopy].contains(kind) else { return false }
        guard let name = plaintextName(of: entry, in: directory) else {
            guard isDamaged(entry, in: directory) else { return false }
            store.counters.hiddenNames.count()
            let path = objectPath(of: handle.node, entry: entry)
            damageObserver.notify(Damage("its name is damaged, or of another directory", at: path))
            return false
        }
        listed.name = name
        if kind == .conflictCopy { conflictCopies.insert(entry, in: handle.node) }
        if !withAttributes { return true }
        do {
            let status = try directory.status(of: entry)
            let node = intern(status, parent: handle.node, entry: entry)
            do throws(StoreError) {
                if !wasUnlocked { try admit(node, .finding) }
                listed.attributes = plaintextAttributes(status, of: node)
                listed.id = nodes.id(of: node)
            } catch {
                // The class hides the attributes but not the name. The kernel asks for them when a program needs them.
                nodes.forget(node, count: 1)
            }
            return true
        } catch .system(.noSuchFileOrDirectory) {
            // It was removed since getdents(2).
            return false
        }
    }

    /// Removes a leftover that a listing meets. To sweep the whole tree at mount would make a mount as slow as the tree is
    /// large. The root is swept then, because log and slot commands have temporary files there while it is mounted.
    private func sweep(_ entry: [UInt8], _ handle: DirectoryHandle) {
        // Another machine's temporary files stay.
        if handle.node !== nodes.root, (try? store.admitChange()) != nil { handle.directory.removeLeftover(entry) }
    }

    /// Returns true if an entry whose name does not authenticate is the vault's. Other programs' files are not damage.
    private func isDamaged(_ entry: [UInt8], in directory: OpenDirectory) -> Bool {
        if EntryName.canBeEncrypted(entry) { return true }
        if EntryName.isShortened(entry) { return false }
        // Looked at once, not at each listing. Its times show that it was renamed or changed.
        // Without all keys nothing can be said.
        guard gate.isUnlocked(), let status = try? directory.status(of: entry) else { return false }
        let found = ForeignEntry(entry: entry, stamp: FileStamp(status))
        if foreignEntries.withLock({ $0.contains(found) }) { return false }
        if HiddenName.isDamaged(entry, in: directory.descriptor, keys: directory.keys, store.keyRing) { return true }
        foreignEntries.withLock { known in
            if known.count >= ForeignEntry.mostKnown { known = [] }
            known.insert(found)
        }
        return false
    }

    /// The name of a backing entry. Nil if it does not authenticate.
    func plaintextName(of entry: [UInt8], in directory: OpenDirectory) -> [UInt8]? {
        let kind = EntryName.kind(of: entry)
        if kind == .conflictCopy { return directory.conflictName(of: entry) }
        let blob = kind == .longName ? directory.sidecarBlob(of: entry) ?? [] : nil
        return EntryName.decode(entry, sidecarBlob: blob, keys: directory.keys)
    }
}

/// Another program's entry in a directory of the vault, as it was when it was looked at.
struct ForeignEntry: Hashable {
    /// Number of entries that are remembered.
    static let mostKnown = 10_000

    let entry: [UInt8]
    let stamp: FileStamp
}

/// An open directory and a position in it: the result of opendir(3). Any thread.
package final class DirectoryHandle: Sendable {
    let node: Node
    let directory: OpenDirectory
    let reader: Mutex<DirectoryReader>

    /// - Parameter directory: opened for reading, for this handle only.
    init(node: Node, directory: OpenDirectory) {
        self.node = node
        self.directory = directory
        reader = Mutex(DirectoryReader(directory.descriptor))
    }
}
