internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

extension OpenDirectory {
    /// unlink(2) of a backing entry; a long name's sidecar goes after it.
    package func unlink(_ encoded: EntryName.Encoded) throws(StoreError) {
        try withCString(encoded.entry) { (name) throws(StoreError) in
            _ = try retrying { unlinkat(descriptor.fd, name, 0) }
        }
        if encoded.sidecarBlob != nil { removeQuietly(EntryName.sidecar(of: encoded.entry)) }
    }

    /// rmdir(2): under a temporary name first, so that it goes as a whole.
    /// - Throws: `ENOTEMPTY`, also for names that do not authenticate.
    package func removeDirectory(_ encoded: EntryName.Encoded) throws(StoreError) {
        try checkEmpty(encoded.entry)
        let temporary = try temporaryEntry()
        try rename(encoded.entry, in: descriptor.fd, as: temporary, flags: 0)
        do throws(StoreError) {
            // Once more, where nobody finds it: its record holds the key of every name in it.
            try checkEmpty(temporary)
        } catch {
            try? moveIntoPlace(temporary, as: encoded.entry)
            throw error
        }
        try finishRemoval(of: temporary, formerly: encoded)
    }

    private func finishRemoval(of temporary: [UInt8], formerly encoded: EntryName.Encoded) throws(StoreError) {
        discardDirectory(temporary)
        if (try? status(of: temporary)) != nil {
            // Something got in that is not ours: give it its name back.
            try? moveIntoPlace(temporary, as: encoded.entry)
            throw .system(.directoryNotEmpty)
        }
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Throws `ENOTEMPTY` unless the directory holds nothing but what is vaultfs's own.
    private func checkEmpty(_ entry: [UInt8]) throws(StoreError) {
        let before = try status(of: entry)
        guard before.st_mode & S_IFMT == S_IFDIR else { throw .system(.notDirectory) }
        let isClosed = before.st_mode & 0o700 != 0o700 && geteuid() != 0
        // rmdir(2) needs no permission on the directory that goes; looking into it does.
        if isClosed { try changeMode(of: entry, to: before.st_mode & 0o7777 | 0o700) }
        do throws(StoreError) {
            let directory = try Descriptor(at: descriptor.fd, entry, flags: O_RDONLY | O_DIRECTORY)
            store.accessTimes.prepare(directory: directory)
            try OpenDirectory.sweepLeftovers(of: directory, keeping: store.temporaryPrefix, includingSidecars: true)
            var reader = DirectoryReader(directory)
            while let found = try reader.next() {
                if found.name == Self.recordEntry { continue }
                throw StoreError.system(.directoryNotEmpty)
            }
        } catch {
            if isClosed { try? changeMode(of: entry, to: before.st_mode & 0o7777) }
            throw error
        }
    }

    /// rename(2) to `newName` in `other`, which may be this directory.
    /// - Parameter flags: renameat2(2): 0, RENAME_NOREPLACE or RENAME_EXCHANGE.
    package func rename(
        _ encoded: EntryName.Encoded, to other: OpenDirectory, as newEncoded: EntryName.Encoded, flags: UInt32,
        owner: Owner? = nil
    ) throws(StoreError) {
        if flags == linux_RENAME_EXCHANGE {
            return try rename(encoded.entry, in: other.descriptor.fd, as: newEncoded.entry, flags: flags)
        }
        try other.publish(newEncoded, owner) { (newEntry) throws(StoreError) in
            do throws(StoreError) {
                try rename(encoded.entry, in: other.descriptor.fd, as: newEntry, flags: flags)
            } catch .system(let errno) where flags == 0 && [.directoryNotEmpty, .fileExists].contains(errno) {
                // Every directory holds its record, so none is empty to the store.
                try replaceDirectory(encoded, in: other, newEntry)
            }
        }
        // Two names of one file: rename(2) leaves both.
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Renames a directory onto an empty one: they change places, then the empty one goes.
    private func replaceDirectory(
        _ encoded: EntryName.Encoded, in other: OpenDirectory, _ newEntry: [UInt8]
    ) throws(StoreError) {
        try other.checkEmpty(newEntry)
        do {
            try rename(encoded.entry, in: other.descriptor.fd, as: newEntry, flags: linux_RENAME_EXCHANGE)
        } catch .system(.invalidArgument) {
            // A store without RENAME_EXCHANGE: the empty one steps aside first.
            let aside = try other.temporaryEntry()
            try other.rename(newEntry, in: other.descriptor.fd, as: aside, flags: 0)
            try rename(encoded.entry, in: other.descriptor.fd, as: newEntry, flags: 0)
            other.discardDirectory(aside)
            return
        }
        let temporary = try temporaryEntry()
        try rename(encoded.entry, in: descriptor.fd, as: temporary, flags: 0)
        discardDirectory(temporary)
    }

    /// `sweep`, when the directory is first listed since it was opened. A sweep of the whole tree at mount would make a
    /// mount as slow as the tree is large.
    package func sweepOnce() {
        if wasSwept.exchange(true, ordering: .relaxed) { return }
        // Best effort: leftovers are not shown, they only take space.
        try? sweep()
    }

    /// Removes what operations of a daemon that died have left in this directory.
    package func sweep() throws(StoreError) {
        let directory = try Descriptor(at: descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        store.accessTimes.prepare(directory: directory)
        try Self.sweepLeftovers(of: directory, keeping: store.temporaryPrefix, includingSidecars: false)
    }

    /// Removes `vaultfs.tmp.*` that is not this mount's, and sidecars without an entry.
    static func sweepLeftovers(
        of directory: Descriptor, keeping prefix: String, includingSidecars: Bool
    ) throws(StoreError) {
        let ours = EntryName.temporary(prefix)
        var leftovers: [[UInt8]] = []
        var reader = DirectoryReader(directory)
        while let found = try reader.next() {
            switch EntryName.kind(of: found.name) {
            case .temporary where !found.name.starts(with: ours): leftovers.append(found.name)
            case .sidecar where includingSidecars:
                // Where it cannot be told it stays.
                if (try? directory.isSidecarOrphaned(found.name)) == true { leftovers.append(found.name) }
            default: break
            }
        }
        for entry in leftovers { remove(entry, from: directory) }
        try retrying { lseek(directory.fd, 0, SEEK_SET) }
    }

    /// Removes a leftover. Best effort: a directory with more than its record in it stays.
    static func remove(_ entry: [UInt8], from directory: Descriptor) {
        if withCString(entry, { unlinkat(directory.fd, $0, 0) }) == 0 { return }
        // One that was to be closed to its owner may be so already.
        guard let pin = try? Descriptor(at: directory.fd, entry, flags: linux_O_PATH | O_DIRECTORY),
            let closedMode = try? pin.openToOwner()
        else { return removeDirectory(entry, from: directory) }
        removeDirectory(entry, from: directory)
        // Where it is still there.
        try? pin.changePinnedMode(to: closedMode)
    }

    private static func removeDirectory(_ entry: [UInt8], from directory: Descriptor) {
        guard let inside = try? Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_DIRECTORY) else { return }
        var reader = DirectoryReader(inside)
        do throws(StoreError) {
            while let found = try reader.next() {
                // It stays, to be looked at; and its record, without which the names in it are lost.
                if found.name != recordEntry { return }
            }
        } catch {
            // Nor is it known to be empty.
            return
        }
        _ = withCString(recordEntry) { unlinkat(inside.fd, $0, 0) }
        _ = withCString(entry) { unlinkat(directory.fd, $0, AT_REMOVEDIR) }
    }
}

extension Descriptor {
    /// Whether the entry of a sidecar in this directory is gone.
    func isSidecarOrphaned(_ sidecar: [UInt8]) throws(StoreError) -> Bool {
        do throws(StoreError) {
            _ = try status(of: Array(sidecar.dropLast(".name".utf8.count)))
            return false
        } catch .system(.noSuchFileOrDirectory) {
            return true
        }
    }
}
