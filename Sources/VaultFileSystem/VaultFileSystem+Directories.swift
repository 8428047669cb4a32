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
        // Leave another machine's temporary files.
        if (try? store.admitChange()) != nil { directory.sweepOnce() }
        try confirmKeys(of: directory, node)
        let handle = DirectoryHandle(node: node, directory: try directory.reopenedForListing())
        openDirectories.insert(handle)
        return handle
    }

    package func release(_ handle: DirectoryHandle) {
        openDirectories.remove(handle)
    }

    package func synchronize(_ handle: DirectoryHandle, dataOnly: Bool) throws(StoreError) {
        try handle.directory.descriptor.synchronize(dataOnly: dataOnly)
    }

    /// Entries that do not authenticate are left out and counted.
    package func list(
        _ handle: DirectoryHandle, from offset: Int64, withAttributes: Bool, _ take: (ListedEntry) -> Bool
    ) throws(StoreError) {
        try admit(handle.node, .names)
        // Without keys every name would be hidden.
        if handle.directory.keys.isForgotten { try handle.directory.restoreKeys() }
        // Once for all entries, because each check is two system calls per lock file.
        let wasUnlocked = gate.isUnlocked()
        try listEntries(of: handle, from: offset, withAttributes, wasUnlocked, take)
        try confirmKeys(of: handle.directory, handle.node)
    }

    private func listEntries(
        of handle: DirectoryHandle, from offset: Int64, _ withAttributes: Bool, _ wasUnlocked: Bool,
        _ take: (ListedEntry) -> Bool
    ) throws(StoreError) {
        try handle.reader.withLock { (reader) throws(StoreError) in
            try reader.seek(to: offset)
            while true {
                guard let found = try reader.nextWithDots() else { return }
                guard
                    let listed = try listed(found, in: handle, withAttributes: withAttributes, wasUnlocked: wasUnlocked)
                else { continue }
                if take(listed) { continue }
                if let id = listed.id { forget(id, count: 1) }
                return reader.putBack()
            }
        }
    }

    private func listed(
        _ found: DirectoryReader.Entry, in handle: DirectoryHandle, withAttributes: Bool, wasUnlocked: Bool
    ) throws(StoreError) -> ListedEntry? {
        var attributes = stat()
        attributes.st_ino = ino_t(found.inode)
        attributes.st_mode = mode_t(found.type) << 12  // DTTOIF, readdir(3)
        if found.name == [UInt8(ascii: ".")] || found.name == Array("..".utf8) {
            return ListedEntry(name: found.name, attributes: attributes, nextOffset: found.nextOffset)
        }
        guard let name = try plaintextName(of: found.name, in: handle) else { return nil }
        var listed = ListedEntry(name: name, attributes: attributes, nextOffset: found.nextOffset)
        if withAttributes {
            do {
                let status = try handle.directory.status(of: found.name)
                let node = nodes.intern(status, parent: handle.node, entry: found.name)
                do throws(StoreError) {
                    if !wasUnlocked { try admitFound(node) }
                    listed.attributes = plaintextAttributes(status, of: node)
                    listed.id = nodes.id(of: node)
                } catch {
                    // The class hides the attributes but not the name. The kernel asks for them when a program needs them.
                    nodes.forget(node, count: 1)
                }
            } catch .system(.noSuchFileOrDirectory) {
                // It was removed since getdents(2).
                return nil
            }
        }
        return listed
    }

    /// The name of a backing entry. Nil for entries of vaultfs itself, and for names that do not authenticate.
    private func plaintextName(of entry: [UInt8], in handle: DirectoryHandle) throws(StoreError) -> [UInt8]? {
        var blob: [UInt8]?
        switch EntryName.kind(of: entry) {
        case .name: break
        case .longName: blob = handle.directory.sidecarBlob(of: entry) ?? []
        case .sidecar, .temporary, .reserved: return nil
        }
        let name = EntryName.decode(entry, sidecarBlob: blob, keys: handle.directory.keys)
        if name == nil { store.counters.hiddenNames.count() }
        return name
    }
}
