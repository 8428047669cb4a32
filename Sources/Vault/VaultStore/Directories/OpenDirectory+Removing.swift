internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
package import VaultFormat

extension OpenDirectory {
    /// unlink(2) of a backing entry. Removes a long name's sidecar after it.
    /// - Parameter mayBeOpen: true if this process may have the file open.
    /// - Throws: `.system` with errno.
    package func unlink(_ encoded: EntryName.Encoded, mayBeOpen: Bool = false) throws(StoreError) {
        if mayBeOpen, store.refusesReplacingOpenFiles {
            try removeOpenFile(encoded.entry)
        } else {
            try descriptor.remove(encoded.entry)
        }
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Removes a file that this process may have open, on a store that shows such a file until its last close, and
    /// somewhat longer (SMB: the kernel's client closes it after a second). Nobody sees the name under which it goes,
    /// so another file can have its own at once.
    private func removeOpenFile(_ entry: Component) throws(StoreError) {
        // Not one of this mount's: whoever meets it again removes it.
        let hidden = try VaultDirectory.temporaryEntry()
        try moveIntoPlace(entry, as: hidden)
        do throws(StoreError) { try descriptor.remove(hidden) } catch {
            try? moveIntoPlace(hidden, as: entry)
            throw error
        }
    }

    /// rmdir(2). The directory gets a temporary name first, so that it never appears half removed, if the store can rename it.
    /// - Throws: `ENOTEMPTY`, also for names that do not authenticate; `EBUSY` if the store still shows removed files
    ///   that are open.
    package func removeDirectory(_ encoded: EntryName.Encoded) throws(StoreError) {
        try checkEmpty(encoded.entry)
        if store.traits.renamesDirectories == false {
            try removeDirectoryInPlace(encoded.entry)
            if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
            return
        }
        let temporary = try temporaryEntry()
        try rename(encoded.entry, in: descriptor, as: temporary, flags: 0)
        do throws(StoreError) {
            // Again under the new name, because the record has the key of every name in the directory.
            try checkEmpty(temporary)
        } catch {
            try? moveIntoPlace(temporary, as: encoded.entry)
            throw error
        }
        discardDirectory(temporary)
        if (try? status(of: temporary)) != nil {
            // Something else is in it. It gets its name back.
            try? moveIntoPlace(temporary, as: encoded.entry)
            throw .system(.directoryNotEmpty)
        }
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Removes the record, then the directory. The record comes back if the directory stays.
    private func removeDirectoryInPlace(_ entry: Component) throws(StoreError) {
        let pin = try Descriptor(at: descriptor, entry, flags: linux_O_PATH | O_DIRECTORY)
        let closedMode = try pin.openToOwner()
        let directory = try pin.openedForReading()
        let record = try? directory.readFile(Self.recordEntry, limit: DirectoryRecord.size)
        directory.removeQuietly(Self.recordEntry)
        do throws(StoreError) { try descriptor.removeDirectory(entry) } catch {
            if let record { try? directory.makeFile(Self.recordEntry, of: record, owner: nil, mode: 0o644) }
            if let closedMode { try? pin.changePinnedMode(to: closedMode) }
            throw error
        }
    }

    /// Throws `ENOTEMPTY` if the directory holds more than its record and leftovers, which are removed.
    private func checkEmpty(_ entry: Component) throws(StoreError) {
        let before = try status(of: entry)
        guard before.st_mode & S_IFMT == S_IFDIR else { throw .system(.notDirectory) }
        // rmdir(2) needs no permission on the directory itself, but a look into it does.
        let isClosed = before.st_mode & 0o700 != 0o700 && geteuid() != 0
        if isClosed { try changeMode(of: entry, to: before.st_mode & 0o7777 | 0o700) }
        do throws(StoreError) {
            let directory = try Descriptor(at: descriptor, entry, flags: O_RDONLY | O_DIRECTORY)
            store.accessTimes.prepare(directory: directory)
            if try Self.holdsOnlyRecord(directory) { return }
            try Self.sweepLeftovers(of: directory, keeping: store.temporaryPrefix, includingSidecars: true)
            if try Self.holdsOnlyRecord(directory) { return }
            try retrying { lseek(directory.fd, 0, SEEK_SET) }
            let isRemoved = { [prefix = store.temporaryPrefix] in Self.isLeftover($0, keeping: prefix) }
            guard store.refusesReplacingOpenFiles, try Self.holdsOnlyRecord(directory, besides: isRemoved) else {
                throw StoreError.system(.directoryNotEmpty)
            }
            throw StoreError.system(.resourceBusy)
        } catch {
            if isClosed { try? changeMode(of: entry, to: before.st_mode & 0o7777) }
            throw error
        }
    }

    /// - Parameters:
    ///   - directory: at its beginning.
    ///   - isIgnored: returns true for an entry that it may hold, too.
    private static func holdsOnlyRecord(
        _ directory: Descriptor, besides isIgnored: (Component) -> Bool = { _ in false }
    ) throws(StoreError) -> Bool {
        var reader = DirectoryReader(directory)
        var isAlone = true
        while isAlone, let found = try reader.next() { isAlone = found == recordEntry || isIgnored(found) }
        return isAlone
    }

    func changeMode(of entry: Component, to mode: mode_t) throws(StoreError) {
        try Descriptor(at: descriptor, entry, flags: linux_O_PATH).changePinnedMode(to: mode)
    }

    /// rename(2) to `newName` in `other`, which may be this directory. The store itself makes the whiteout of
    /// RENAME_WHITEOUT, so that no crash can leave the rename without it.
    /// - Parameter flags: renameat2(2): RENAME_EXCHANGE, or any of the others.
    /// - Throws: `.system` with errno, such as `ENOTEMPTY`, or `EINVAL` for a flag that the store does not have.
    package func rename(
        _ encoded: EntryName.Encoded, to other: OpenDirectory, as newEncoded: EntryName.Encoded, flags: UInt32,
        owner: Owner? = nil
    ) throws(StoreError) {
        if flags == linux_RENAME_EXCHANGE {
            return try rename(encoded.entry, in: other.descriptor, as: newEncoded.entry, flags: flags)
        }
        let replaces = flags & linux_RENAME_NOREPLACE == 0
        try other.publish(newEncoded, owner) { (newEntry) throws(StoreError) in
            if flags == 0, store.refusesReplacingOpenFiles, try replaceOpenFile(encoded, in: other, newEntry) { return }
            do throws(StoreError) {
                try rename(encoded.entry, in: other.descriptor, as: newEntry, flags: flags)
            } catch .system(let errno) where replaces && Self.notEmpty.contains(errno) {
                if errno == .notPermitted, !isDirectory(newEntry, in: other) { throw .system(errno) }
                // A directory holds at least its record, so the store never sees an empty one.
                try replaceDirectory(encoded, in: other, newEntry, flags)
            }
        }
        if flags & linux_RENAME_WHITEOUT != 0, let owner { giveWhiteout(encoded.entry, to: owner) }
        // rename(2) leaves both names if they are names of one file, and a whiteout keeps the old one.
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Gives a whiteout that the store has made to the caller. Best effort: the rename has happened, and the owner of
    /// an object that has no mode decides only who may remove it from a sticky directory.
    private func giveWhiteout(_ entry: Component, to owner: Owner) {
        guard let whiteout = try? Descriptor(at: descriptor, entry, flags: linux_O_PATH),
            (try? whiteout.status().st_mode & S_IFMT) == S_IFCHR
        else { return }
        try? owner.apply(to: whiteout, in: descriptor)
    }

    /// A store's errors for a rename over a directory that is not empty. `EPERM` is that of sshfs, whose protocol has no error
    /// for it.
    private static let notEmpty: [Errno] = [.directoryNotEmpty, .fileExists, .notPermitted]

    private func isDirectory(_ entry: Component, in other: OpenDirectory) -> Bool {
        ((try? other.status(of: entry))?.st_mode ?? 0) & S_IFMT == S_IFDIR
    }

    /// Renames over a file that may be open, on a store that refuses that. The file steps aside first, as a conflict copy:
    /// a kill between the two renames loses neither.
    /// - Returns: false if there is no such file.
    private func replaceOpenFile(
        _ encoded: EntryName.Encoded, in other: OpenDirectory, _ newEntry: Component
    ) throws(StoreError) -> Bool {
        guard let target = try other.descriptor.statusIfPresent(of: newEntry), target.st_mode & S_IFMT != S_IFDIR,
            try FileIdentity(target) != FileIdentity(status(of: encoded.entry))
        else { return false }
        let aside = newEntry + (try Descriptor.keptAddition())
        try other.moveIntoPlace(newEntry, as: aside)
        do throws(StoreError) {
            try rename(encoded.entry, in: other.descriptor, as: newEntry, flags: 0)
        } catch {
            try? other.moveIntoPlace(aside, as: newEntry)
            throw error
        }
        if (try? other.removeOpenFile(aside)) == nil { other.descriptor.removeQuietly(aside) }
        return true
    }

    /// Renames a directory onto an empty one. The two exchange names, then the empty one is removed.
    private func replaceDirectory(
        _ encoded: EntryName.Encoded, in other: OpenDirectory, _ newEntry: Component, _ flags: UInt32
    ) throws(StoreError) {
        try other.checkEmpty(newEntry)
        let temporary = try temporaryEntry()
        do throws(StoreError) {
            try rename(encoded.entry, in: other.descriptor, as: newEntry, flags: linux_RENAME_EXCHANGE)
        } catch .system(.invalidArgument) {
            // The store has no RENAME_EXCHANGE. The empty directory gets a temporary name first.
            let aside = try other.temporaryEntry()
            try other.rename(newEntry, in: other.descriptor, as: aside, flags: 0)
            do throws(StoreError) {
                try rename(encoded.entry, in: other.descriptor, as: newEntry, flags: flags)
            } catch {
                try? other.moveIntoPlace(aside, as: newEntry)
                throw error
            }
            other.discardDirectory(aside)
            return
        }
        do throws(StoreError) {
            try rename(encoded.entry, in: descriptor, as: temporary, flags: flags)
        } catch {
            // Each gets its name back.
            try? rename(encoded.entry, in: other.descriptor, as: newEntry, flags: linux_RENAME_EXCHANGE)
            throw error
        }
        discardDirectory(temporary)
    }

    /// Removes the temporary `entry` if a daemon that died has left it. Best effort: leftovers are not shown, they only
    /// take space.
    package func removeLeftover(_ entry: Component) {
        if Self.isLeftover(entry, keeping: store.temporaryPrefix) { Self.remove(entry, from: descriptor) }
    }

    /// True for `vaultfs.tmp.*`, but for a new `vaultfs.json`: if its rename is refused, it may be all that opens the vault.
    static func isLeftover(_ entry: Component) -> Bool {
        EntryName.kind(of: entry.bytes) == .temporary && !entry.starts(with: ConfigurationReplacement.prefix)
    }

    /// The same, but for the names of the mount that has this prefix.
    private static func isLeftover(_ entry: Component, keeping prefix: Component) -> Bool {
        isLeftover(entry) && !entry.starts(with: EntryName.temporary(prefix))
    }

    /// Removes leftovers of daemons that died from this directory.
    /// - Throws: `.system` with errno.
    package func sweep() throws(StoreError) {
        let directory = try descriptor.openedForReading()
        store.accessTimes.prepare(directory: directory)
        try Self.sweepLeftovers(of: directory, keeping: store.temporaryPrefix, includingSidecars: false)
    }

    /// Removes `vaultfs.tmp.*` that is not this mount's, and sidecars without an entry. Leaves the directory at its beginning.
    static func sweepLeftovers(
        of directory: Descriptor, keeping prefix: Component, includingSidecars: Bool
    ) throws(StoreError) {
        var leftovers: [Component] = []
        try retrying { lseek(directory.fd, 0, SEEK_SET) }
        var reader = DirectoryReader(directory)
        var sidecars: [Component] = []
        while let found = try reader.next() {
            switch EntryName.kind(of: found.bytes) {
            case .temporary where isLeftover(found, keeping: prefix):
                leftovers.append(found)
            case .sidecar where includingSidecars: sidecars.append(found)
            default: break
            }
        }
        if !sidecars.isEmpty {
            let twins = try directory.conflictTwins()
            leftovers += sidecars.filter { sidecar in
                guard let entry = EntryName.entry(ofSidecar: sidecar) else { return false }
                // It stays if its entry cannot be checked.
                return !twins.contains(entry) && (try? directory.statusIfPresent(of: entry) == nil) == true
            }
        }
        for entry in leftovers { remove(entry, from: directory) }
        try retrying { lseek(directory.fd, 0, SEEK_SET) }
    }

    /// Removes a leftover. Best effort: a directory stays if it holds more than its record.
    package static func remove(_ entry: Component, from directory: Descriptor) {
        if (try? directory.remove(entry)) != nil { return }
        if entry.starts(with: StoreTraits.prefix) { return StoreTraits.remove(entry, from: directory) }
        // A new directory may already have a mode that denies its owner access.
        guard let pin = try? Descriptor(at: directory, entry, flags: linux_O_PATH | O_DIRECTORY),
            let closedMode = try? pin.openToOwner()
        else { return removeDirectory(entry, from: directory) }
        removeDirectory(entry, from: directory)
        // If it was not removed.
        try? pin.changePinnedMode(to: closedMode)
    }

    private static func removeDirectory(_ entry: Component, from directory: Descriptor) {
        // With anything else it stays for a person to look at, with its record, without which the names are lost.
        guard let inside = try? Descriptor(at: directory, entry, flags: O_RDONLY | O_DIRECTORY),
            let entries = try? inside.allEntries(), entries.allSatisfy({ $0 == recordEntry })
        else { return }
        inside.removeQuietly(recordEntry)
        try? directory.removeDirectory(entry)
    }
}
