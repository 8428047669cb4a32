internal import CLinux
internal import Glibc
package import LinuxSystem
internal import SystemPackage
package import VaultFormat

extension OpenDirectory {
    /// unlink(2) of a backing entry. Then removes a long name's sidecar.
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

    /// Removes a file that this process may have open. On SMB such a file stays visible until its last close, and a
    /// second longer in the kernel's client. So it gets a hidden name first, and another file can have its own at once.
    private func removeOpenFile(_ entry: Component) throws(StoreError) {
        // Use a name without this mount's prefix, so that every sweep removes the file if it stays.
        let hidden = try VaultDirectory.temporaryEntry()
        try moveIntoPlace(entry, as: hidden)
        do throws(StoreError) { try descriptor.remove(hidden) } catch {
            try? moveIntoPlace(hidden, as: entry)
            throw error
        }
    }

    /// rmdir(2). If the store can rename the directory, it gets a temporary name first, so that it never appears half
    /// removed.
    /// - Throws: `ENOTEMPTY`, also for names that do not authenticate; `EBUSY` if the store still shows removed open
    ///   files.
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
            // Check again under the new name: the record about to be removed has the key of every name in the
            // directory.
            try checkEmpty(temporary)
        } catch {
            try? moveIntoPlace(temporary, as: encoded.entry)
            throw error
        }
        discardDirectory(temporary)
        if (try? status(of: temporary)) != nil {
            // The directory holds something else, so restore its name.
            try? moveIntoPlace(temporary, as: encoded.entry)
            throw .system(.directoryNotEmpty)
        }
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Removes the record, then the directory. Restores the record if the directory stays.
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

    /// Removes leftovers. Throws `ENOTEMPTY` if the directory then holds more than its record.
    private func checkEmpty(_ entry: Component) throws(StoreError) {
        let before = try status(of: entry)
        guard before.st_mode & S_IFMT == S_IFDIR else { throw .system(.notDirectory) }
        // Open it to the owner, because rmdir(2) needs no permission on the directory, but this check does.
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

    /// Returns true if a directory holds only its record.
    /// - Parameters:
    ///   - directory: at its beginning.
    ///   - isIgnored: returns true for an entry to be ignored.
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
    /// - Throws: `.system` with errno, such as `ENOTEMPTY`, or `EINVAL` for a flag unknown to the store.
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
        // Keep the sidecar if the old name remains: for two names of one file (rename(2)), and for a whiteout.
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Gives a whiteout made by the store to the caller. Best effort: the rename has happened, and a whiteout has no
    /// mode, so its owner matters only for removing it from a sticky directory.
    private func giveWhiteout(_ entry: Component, to owner: Owner) {
        guard let whiteout = try? Descriptor(at: descriptor, entry, flags: linux_O_PATH),
            (try? whiteout.status().st_mode & S_IFMT) == S_IFCHR
        else { return }
        try? owner.apply(to: whiteout, in: descriptor)
    }

    /// A store's errors for a rename over a nonempty directory. sshfs returns `EPERM`, for lack of a better error.
    private static let notEmpty: [Errno] = [.directoryNotEmpty, .fileExists, .notPermitted]

    private func isDirectory(_ entry: Component, in other: OpenDirectory) -> Bool {
        ((try? other.status(of: entry))?.st_mode ?? 0) & S_IFMT == S_IFDIR
    }

    /// Renames over a file that may be open, on a store that refuses this. Renames the old file to a conflict copy
    /// first, so that a kill between the two renames loses neither.
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

    /// Renames a directory onto an empty one. Exchanges the two, then removes the empty one.
    private func replaceDirectory(
        _ encoded: EntryName.Encoded, in other: OpenDirectory, _ newEntry: Component, _ flags: UInt32
    ) throws(StoreError) {
        try other.checkEmpty(newEntry)
        let temporary = try temporaryEntry()
        do throws(StoreError) {
            try rename(encoded.entry, in: other.descriptor, as: newEntry, flags: linux_RENAME_EXCHANGE)
        } catch .system(.invalidArgument) {
            // The store has no RENAME_EXCHANGE, so give the empty directory a temporary name first.
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
            // Restore both names.
            try? rename(encoded.entry, in: other.descriptor, as: newEntry, flags: linux_RENAME_EXCHANGE)
            throw error
        }
        discardDirectory(temporary)
    }

    /// Removes the temporary `entry` if a killed daemon has left it. Best effort: leftovers only take space.
    package func removeLeftover(_ entry: Component) {
        if Self.isLeftover(entry, keeping: store.temporaryPrefix) { Self.remove(entry, from: descriptor) }
    }

    /// Returns true for `vaultfs.tmp.*`, except a new `vaultfs.json`: after a refused rename only it may open the
    /// vault.
    static func isLeftover(_ entry: Component) -> Bool {
        EntryName.kind(of: entry.bytes) == .temporary && !entry.starts(with: ConfigurationReplacement.prefix)
    }

    /// Returns the same, but false for names of the mount with this prefix.
    private static func isLeftover(_ entry: Component, keeping prefix: Component) -> Bool {
        isLeftover(entry) && !entry.starts(with: EntryName.temporary(prefix))
    }

    /// Removes leftovers of killed daemons from this directory.
    /// - Throws: `.system` with errno.
    package func sweep() throws(StoreError) {
        let directory = try descriptor.openedForReading()
        store.accessTimes.prepare(directory: directory)
        try Self.sweepLeftovers(of: directory, keeping: store.temporaryPrefix, includingSidecars: false)
    }

    /// Removes `vaultfs.tmp.*` without this mount's prefix, and sidecars without an entry. Leaves the directory at its
    /// beginning.
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
                // Keep it if its entry cannot be checked.
                return !twins.contains(entry) && (try? directory.statusIfPresent(of: entry) == nil) == true
            }
        }
        for entry in leftovers { remove(entry, from: directory) }
        try retrying { lseek(directory.fd, 0, SEEK_SET) }
    }

    /// Removes a leftover. Best effort: keeps a directory with more than its record.
    package static func remove(_ entry: Component, from directory: Descriptor) {
        if (try? directory.remove(entry)) != nil { return }
        if entry.starts(with: StoreTraits.prefix) { return StoreTraits.remove(entry, from: directory) }
        // A new directory may already have a mode that denies its owner access.
        guard let pin = try? Descriptor(at: directory, entry, flags: linux_O_PATH | O_DIRECTORY),
            let closedMode = try? pin.openToOwner()
        else { return removeDirectory(entry, from: directory) }
        removeDirectory(entry, from: directory)
        // Restore the mode, in case the directory was not removed.
        try? pin.changePinnedMode(to: closedMode)
    }

    private static func removeDirectory(_ entry: Component, from directory: Descriptor) {
        // Keep a directory with other content for the user. Keep its record too, because without it the names are lost.
        guard let inside = try? Descriptor(at: directory, entry, flags: O_RDONLY | O_DIRECTORY),
            let entries = try? inside.allEntries(), entries.allSatisfy({ $0 == recordEntry })
        else { return }
        inside.removeQuietly(recordEntry)
        try? directory.removeDirectory(entry)
    }
}
