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
            try Self.removeDirectory(encoded.entry, from: descriptor)
        } else {
            let temporary = try temporaryEntry()
            try descriptor.rename(encoded.entry, as: temporary)
            do throws(StoreError) { try Self.removeDirectory(temporary, from: descriptor) } catch {
                try? moveIntoPlace(temporary, as: encoded.entry)
                throw error
            }
        }
        if encoded.sidecarBlob != nil { removeOrphanedSidecar(of: encoded.entry) }
    }

    /// Removes leftovers. Throws `ENOTEMPTY` if the directory then holds more than its record.
    private func checkEmpty(_ entry: Component) throws(StoreError) {
        // Open it to the owner, because rmdir(2) needs no permission on the directory, but this check does.
        try descriptor.withOpenedDirectory(entry) { (directory) throws(StoreError) in
            store.accessTimes.prepare(directory: directory)
            if try Self.holdsOnlyRecord(directory) { return }
            try sweepLeftovers(of: directory, includingSidecars: true)
            if try Self.holdsOnlyRecord(directory) { return }
            try retrying { lseek(directory.fd, 0, SEEK_SET) }
            guard store.refusesReplacingOpenFiles, try Self.holdsOnlyRecord(directory, besides: isLeftover) else {
                throw StoreError.system(.directoryNotEmpty)
            }
            throw StoreError.system(.resourceBusy)
        }
    }

    /// Returns true if a directory holds only its record, and entries for which `isIgnored` returns true.
    private static func holdsOnlyRecord(
        _ directory: Descriptor, besides isIgnored: (Component) -> Bool = { _ in false }
    ) throws(StoreError) -> Bool {
        var reader = DirectoryReader(directory)
        var isAlone = true
        while isAlone, let found = try reader.next() { isAlone = found == recordEntry || isIgnored(found) }
        return isAlone
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
            return try descriptor.rename(encoded.entry, in: other.descriptor, as: newEncoded.entry, flags: flags)
        }
        let replaces = flags & linux_RENAME_NOREPLACE == 0
        try other.publish(newEncoded, owner) { (newEntry) throws(StoreError) in
            if flags == 0, store.refusesReplacingOpenFiles, try replaceOpenFile(encoded, in: other, newEntry) { return }
            do throws(StoreError) {
                try descriptor.rename(encoded.entry, in: other.descriptor, as: newEntry, flags: flags)
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
            try descriptor.rename(encoded.entry, in: other.descriptor, as: newEntry)
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
            try descriptor.rename(encoded.entry, in: other.descriptor, as: newEntry, flags: linux_RENAME_EXCHANGE)
        } catch .system(.invalidArgument) {
            // The store has no RENAME_EXCHANGE, so give the empty directory a temporary name first.
            let aside = try other.temporaryEntry()
            try other.descriptor.rename(newEntry, as: aside)
            do throws(StoreError) {
                try descriptor.rename(encoded.entry, in: other.descriptor, as: newEntry, flags: flags)
            } catch {
                try? other.moveIntoPlace(aside, as: newEntry)
                throw error
            }
            Self.remove(aside, from: other.descriptor)
            return
        }
        do throws(StoreError) {
            try descriptor.rename(encoded.entry, as: temporary, flags: flags)
        } catch {
            // Restore both names.
            try? descriptor.rename(encoded.entry, in: other.descriptor, as: newEntry, flags: linux_RENAME_EXCHANGE)
            throw error
        }
        Self.remove(temporary, from: descriptor)
    }

    /// Removes the temporary `entry` if a killed daemon has left it. Best effort: leftovers only take space.
    package func removeLeftover(_ entry: Component) { if isLeftover(entry) { Self.remove(entry, from: descriptor) } }

    /// Returns true for `vaultfs.tmp.*`, except a new `vaultfs.json`: after a refused rename only it may open the
    /// vault.
    static func isLeftover(_ entry: Component) -> Bool {
        EntryName.kind(of: entry.bytes) == .temporary && !entry.starts(with: ConfigurationReplacement.prefix)
    }

    /// Returns the same, but false for names of this mount.
    private func isLeftover(_ entry: Component) -> Bool {
        Self.isLeftover(entry) && !entry.starts(with: EntryName.temporary(store.temporaryPrefix))
    }

    /// Removes leftovers of killed daemons from this directory.
    /// - Throws: `.system` with errno.
    package func sweep() throws(StoreError) {
        let directory = try descriptor.openedForReading()
        store.accessTimes.prepare(directory: directory)
        try sweepLeftovers(of: directory, includingSidecars: false)
    }

    /// Removes leftovers of killed daemons, and sidecars without an entry.
    private func sweepLeftovers(of directory: Descriptor, includingSidecars: Bool) throws(StoreError) {
        try retrying { lseek(directory.fd, 0, SEEK_SET) }
        var reader = DirectoryReader(directory)
        var leftovers: [Component] = []
        var sidecars: [Component] = []
        while let found = try reader.next() {
            if isLeftover(found) { leftovers.append(found) }
            if includingSidecars && EntryName.kind(of: found.bytes) == .sidecar { sidecars.append(found) }
        }
        if !sidecars.isEmpty {
            let twins = try directory.conflictTwins()
            // Keep a sidecar if its entry cannot be checked.
            leftovers += sidecars.filter { (try? directory.isSidecarOrphaned($0, twins: twins)) == true }
        }
        for entry in leftovers { Self.remove(entry, from: directory) }
        try retrying { lseek(directory.fd, 0, SEEK_SET) }
    }

    /// Removes a leftover. Best effort: keeps a directory with more than its record.
    package static func remove(_ entry: Component, from directory: Descriptor) {
        if (try? directory.remove(entry)) != nil { return }
        if entry.starts(with: StoreTraits.prefix) { return StoreTraits.remove(entry, from: directory) }
        try? removeDirectory(entry, from: directory)
    }

    /// Removes a directory, whatever its mode. One with other content than its record keeps that too, because without
    /// it the names are lost.
    private static func removeDirectory(_ entry: Component, from directory: Descriptor) throws(StoreError) {
        try directory.withOpenedDirectory(entry) { (inside) throws(StoreError) in
            guard try holdsOnlyRecord(inside) else { throw .system(.directoryNotEmpty) }
            let record = try? readRecord(of: inside)
            inside.removeQuietly(recordEntry)
            do throws(StoreError) { try directory.removeDirectory(entry) } catch {
                if let record { try? inside.makeFile(recordEntry, of: record, owner: nil, mode: 0o644) }
                throw error
            }
        }
    }
}
