internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

extension Rekeyer {
    /// Gives every directory of the previous epoch another secret, from the innermost outwards: while the step for one is under
    /// way, the names on the way to it stay.
    func rekeyDirectories() throws(StoreError) {
        try walk(
            enter: { [shared] (_) throws(StoreError) in try shared.check() },
            leave: { [self] (place) throws(StoreError) in
                onProgress(totals)
                guard place.record?.epoch == store.keyRing.epochs.previous else { return }
                do throws(StoreError) {
                    try rekey(place)
                    shared.count { $0.directories += 1 }
                } catch {
                    // With a step half done none may be begun.
                    if error.endsRekey { throw error }
                    if try RekeyIntentFile.isThere(in: store.root) { throw error }
                    shared.take(error, about: place.shown)
                }
                try shared.check()
            })
    }

    private func rekey(_ place: RekeyPlace) throws(StoreError) {
        guard let old = place.record, let oldKeys = place.keys else { return }
        let cipher = try store.keyRing.classCipher(old.protectionClass)
        let made: (bytes: [UInt8], keys: DirectoryKeys)
        do throws(FormatError) {
            made = try DirectoryRecord.make(
                old.protectionClass, epoch: store.keyRing.epochs.current, isRoot: old.isRoot, classCipher: cipher,
                vault: store.keyRing.vault)
        } catch {
            throw StoreError(error)
        }
        guard old.isRoot == place.path.isEmpty else { throw .damaged("vaultfs.dir: the root's flag") }
        try checkFeasible(place, oldKeys)
        let attributes = try RekeyAttributes.encrypted(
            of: place.descriptor, from: oldKeys.attributeKey, to: made.keys.attributeKey)
        let step = RekeyIntent.Directory(
            path: place.path, oldRecord: old.bytes, newRecord: made.bytes, times: place.times, attributes: attributes)
        // A block for each sidecar, and as much for what the attributes take.
        let longNames = try place.descriptor.allEntries().count { EntryName.kind(of: $0) == .longName }
        let space = longNames * 4096 + attributes.reduce(0) { $0 + $1.name.count + $1.value.count + 4096 }
        try intents.carryOut(.directory(step), space: space)
    }

    /// Refuses before anything is begun what a step could only undo.
    private func checkFeasible(_ place: RekeyPlace, _ keys: DirectoryKeys) throws(StoreError) {
        let owner = try OpenDirectory.readRecord(of: place.descriptor).status.st_uid
        guard [0, owner].contains(geteuid()) else {
            throw .damaged("vaultfs.dir is of the user with the id \(owner), who alone can replace it, or root")
        }
        let names = RekeyNames(directory: place.descriptor, keyRing: store.keyRing)
        for entry in try place.descriptor.allEntries() where RekeyNames.isObject(entry) {
            try names.check(entry, under: [keys])
        }
    }

    /// An object whose name is lost, or cannot be read, is under the old key.
    private func checkName(of entry: [UInt8], in place: RekeyPlace) throws(StoreError) {
        // A directory of the previous epoch is named as a whole.
        guard let keys = place.keys, place.record?.epoch == store.keyRing.epochs.current else { return }
        do throws(StoreError) {
            try RekeyNames(directory: place.descriptor, keyRing: store.keyRing).check(entry, under: [keys])
        } catch {
            if error.endsRekey { throw error }
            shared.take(error, about: place.shownPath(of: entry))
        }
    }

    /// Whether nothing of the previous epoch is left, and nothing that may be.
    func isComplete() throws(StoreError) -> Bool {
        var left = 0
        let previous = store.keyRing.epochs.previous
        try walk(
            enter: { [self] (place) throws(StoreError) in
                try shared.check()
                try reportLeftovers(in: place)
                try removeOrphanedSidecars(in: place)
                if let error = place.unread { try shared.walkFailed(place.shown, error) }
                if place.record == nil, place.isNamed {
                    shared.problem(place.shown, "vaultfs.dir: missing, or it does not authenticate")
                }
                if place.record?.epoch == previous { left += 1 }
                for entry in try place.descriptor.allEntries() where RekeyNames.isObject(entry) {
                    try checkName(of: entry, in: place)
                }
            },
            visit: { [self] (object) throws(StoreError) in
                switch try objects.standing(of: object) {
                case .current, .foreign: return
                case .previousFile, .previousLink, .damaged: left += 1
                }
            })
        return left == 0 && totals.problems == 0
    }
}
