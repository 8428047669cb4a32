internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    /// What of the previous epoch may be left where no object is looked for: `vaultfs.tmp.*` that could not be swept. A walk
    /// does not go into it, and nobody knows what it holds.
    func reportLeftovers(in place: RekeyPlace) throws(StoreError) {
        guard place.record != nil else { return }
        for entry in try place.leftovers() {
            let path = place.shown.isEmpty ? entry : place.shown + [UInt8(ascii: "/")] + entry
            shared.problem(
                path, "a leftover that cannot be removed, and may hold old objects: move it out of the vault")
        }
    }

    /// Sidecars without an entry, of either key, which an operation that was cut short has left where no step comes again.
    func removeOrphanedSidecars(in place: RekeyPlace) throws(StoreError) {
        guard place.record?.epoch == store.keyRing.epochs.current else { return }
        for entry in try place.descriptor.allEntries() where EntryName.kind(of: entry) == .sidecar {
            do throws(StoreError) {
                guard try place.descriptor.isSidecarOrphaned(entry) else { continue }
                try store.admitChange()
                try place.willChange()
                try withCString(entry) { (name) throws(StoreError) in
                    _ = try retrying { unlinkat(place.descriptor.fd, name, 0) }
                }
                try place.descriptor.synchronize(dataOnly: false)
            } catch {
                try shared.walkFailed(place.shownPath(of: entry), error)
            }
        }
    }

    /// Takes what the journal holds of the previous epoch out of it: slots of files that are not of the current one, and what
    /// freed slots still hold. After `isComplete`.
    /// - Returns: false, and nothing is taken out, where a file could not be read: a slot may hold its one good record.
    func clearJournal() throws(StoreError) -> Bool {
        var gone = store.journal.retainedFiles
        if !gone.isEmpty {
            try walk(visit: { [self] (object) throws(StoreError) in
                try shared.check()
                guard object.status.st_mode & S_IFMT == S_IFREG, case .current = try objects.standing(of: object),
                    let claim = try RekeyClaim(of: notes.reopenForReading(object.pin, at: object.path))
                else { return }
                gone.remove(claim.fileID)
            })
            guard totals.problems == 0 else { return false }
        }
        try store.admitChange()
        for fileID in gone { store.journal.forget(file: fileID) }
        try store.journal.wipeFreeSlots()
        return true
    }
}
