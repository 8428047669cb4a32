internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import VaultFormat

/// Moves the content of directories whose names are lost here.
extension LostAndFound {
    /// Gives a directory that has no record a new one. So the next repair recognises it as one of this vault, even if this
    /// repair is interrupted.
    package func mark(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try parent.inner(entry)
        if try directory.statusIfPresent(of: OpenDirectory.recordEntry) == nil {
            try OpenDirectory.makeRecord(of: directory, class: .complete, mode: 0o600, in: store)
        }
    }

    /// Empties the directory `entry` of `parent`, keeps its record here, and removes it.
    /// - Throws: `.damaged` if something stays in it. Then the record stays too.
    package func empty(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try parent.inner(entry)
        let digits = Array(try LostObject.digits(of: entry).utf8)
        let name = Array("directory-".utf8) + digits
        let entries = try directory.allEntries()
        try list(entries, in: directory, as: name)
        try move(entries, from: directory)
        try Self.checkNone(try directory.allEntries().filter { $0 != OpenDirectory.recordEntry })
        // Their key is lost with the record.
        let attributes = try ExtendedAttributes(directory).namesIfSupported()
        guard !attributes.contains(where: { $0.starts(with: Array("user.vaultfs.".utf8)) }) else {
            throw .damaged("its attributes are damaged, and stay")
        }
        try synchronize()
        // If the record authenticates, the directory's own was lost, and `mark` has made this one.
        if (try? OpenDirectory.openRecord(of: directory, store.keyRing))?.record.isRoot != false {
            try keepCopy(of: OpenDirectory.recordEntry, from: directory, as: Array("directory-record-".utf8) + digits)
        }
        let sidecar = EntryName.kind(of: entry) == .longName ? EntryName.sidecar(of: entry) : nil
        if let sidecar { try keepCopy(of: sidecar, from: parent, as: name + Array(".name".utf8)) }
        // Removed under a temporary name. If that is interrupted, the next mount completes it.
        let temporary = EntryName.temporary(try VaultDirectory.randomDigits())
        try parent.rename(entry, as: temporary, flags: linux_RENAME_NOREPLACE)
        OpenDirectory.remove(temporary, from: parent)
        if let sidecar { parent.removeQuietly(sidecar) }
    }

    /// Moves everything in the root that has no name under the root's new record.
    /// - Throws: `.damaged` if something stays hidden.
    package func moveFromRoot() throws(StoreError) {
        let root = try Self.openRoot(of: store)
        let listing = try root.reopenedForListing().descriptor
        let hasName = { (entry: [UInt8]) in root.descriptor.name(of: entry, root.keys) != nil }
        let nameless = try listing.allEntries().filter { !hasName($0) }
        try list(nameless, in: listing, as: Array("root".utf8))
        try move(nameless, from: listing)
        try keepAside(DamagedRoot.recordPrefix)
        try Self.checkNone(try listing.allEntries().filter { EntryName.isObject($0) && !hasName($0) })
    }

    /// Moves the damaged objects that stepped aside in the root, under names that begin with `prefix`.
    /// - Throws: the error of the first object that cannot be moved. It and those after it stay.
    package func keepAside(_ prefix: [UInt8]) throws(StoreError) {
        for entry in try store.root.allEntries() where entry.starts(with: prefix) {
            if try hasCopy(of: entry, prefix) {
                try store.root.remove(entry)
            } else {
                try keep(entry, from: store.root, as: entry)
            }
        }
    }

    /// Returns true if a file here whose name begins with `prefix` has the content of a file in the root.
    private func hasCopy(of entry: [UInt8], _ prefix: [UInt8]) throws(StoreError) -> Bool {
        let pin = try Descriptor(at: store.root.fd, entry, flags: linux_O_PATH)
        let status = try pin.status()
        guard status.st_mode & S_IFMT == S_IFREG else { return false }
        let original = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
        let workspace = try Workspace(layout: store.layout)
        for kept in try opened.descriptor.allEntries() {
            guard opened.descriptor.name(of: kept, opened.keys)?.starts(with: prefix) == true,
                let reader = try? Descriptor(at: opened.descriptor.fd, kept, flags: O_RDONLY | O_NONBLOCK),
                let file = try? EncryptedFile.open(reader, in: store), file.length == UInt64(status.st_size)
            else { continue }
            if (try? file.hasSameBytes(as: original, workspace)) == true { return true }
        }
        return false
    }

    private static func checkNone(_ left: [[UInt8]]) throws(StoreError) {
        if left.isEmpty { return }
        throw .damaged(
            left.count == 1
                ? "1 entry is damaged, and stays" : "\(left.count) entries are damaged, and stay")
    }

    /// Lists the new name of each entry before any is moved. If the lost record is found again, for instance in a backup, it
    /// decrypts the entries of the list (FileFormat, Store-32).
    private func list(_ entries: [[UInt8]], in directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        let moves = entries.filter(EntryName.isObject).compactMap { entry in
            LostObject.find(entry, in: directory, store.keyRing).map { (entry, $0.name) }
        }
        try list(moves, as: name)
    }

    /// Moves the entries that authenticate. Removes sidecars whose entry a killed repair has moved.
    private func move(_ entries: [[UInt8]], from directory: Descriptor) throws(StoreError) {
        for entry in entries {
            switch EntryName.kind(of: entry) {
            case .name, .longName, .conflictCopy:
                do throws(StoreError) { try moveHere(entry, from: directory) } catch .damaged {}
            case .sidecar:
                if (try? directory.isSidecarOrphaned(entry)) == true { OpenDirectory.remove(entry, from: directory) }
            case .temporary: OpenDirectory.remove(entry, from: directory)
            case .reserved: break
            }
        }
    }
}
