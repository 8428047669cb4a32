internal import BackingStore
internal import CLinux
internal import Glibc
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    /// What of the previous epoch may be left where no object is looked for: `vaultfs.tmp.*` that could not be swept. A walk
    /// does not go into it, and nobody knows what it holds.
    func reportLeftovers(in place: RekeyPlace) throws(StoreError) {
        guard place.record != nil else { return }
        for entry in try place.descriptor.allEntries() where EntryName.kind(of: entry) == .temporary {
            // Of whoever changes slots meanwhile.
            if entry.starts(with: Array(ConfigurationReplacement.prefix.utf8)) { continue }
            let path = place.shown.isEmpty ? entry : place.shown + [UInt8(ascii: "/")] + entry
            shared.problem(
                path, "a leftover that cannot be removed, and may hold old objects: move it out of the vault")
        }
    }

    /// Takes what the journal holds of the previous epoch out of it: slots of files that are not of the current one, and what
    /// freed slots still hold. After `isComplete`.
    func clearJournal() throws(StoreError) {
        var gone = store.journal.retainedFiles
        if !gone.isEmpty {
            try walk(visit: { [self] (object) throws(StoreError) in
                try shared.check()
                guard object.status.st_mode & S_IFMT == S_IFREG, case .current = try objects.standing(of: object),
                    let claim = try RekeyClaim(of: object.pin.reopened(flags: O_RDONLY | O_NONBLOCK))
                else { return }
                gone.remove(claim.fileID)
            })
        }
        try store.admitChange()
        for fileID in gone { store.journal.forget(file: fileID) }
        try store.journal.wipeFreeSlots()
    }
}
