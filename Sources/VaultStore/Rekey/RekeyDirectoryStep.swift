internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Gives a directory another secret: its names, its attributes, and then its record. Or, where that fails, its old one back.
/// Either may be done any number of times, and goes on from wherever it or the other was stopped.
struct RekeyDirectoryStep {
    private struct Renaming {
        let entry: [UInt8]
        let encoded: EntryName.Encoded
    }

    /// From which record to which.
    private struct Change {
        let oldKeys: DirectoryKeys
        let newKeys: DirectoryKeys
        let newRecord: [UInt8]
        let attributes: [RekeyIntent.Attribute]
        /// Going back: what cannot be done stays as a leftover, where nothing is lost with it.
        let isUndoing: Bool
    }

    let step: RekeyIntent.Directory
    let notes: RekeyNotes
    let before: RekeyHook
    private var keyRing: KeyRing { notes.keyRing }

    func perform() throws(StoreError) {
        let (old, new) = (try keys(step.oldRecord), try keys(step.newRecord))
        try make(
            Change(
                oldKeys: old, newKeys: new, newRecord: step.newRecord, attributes: step.attributes, isUndoing: false))
    }

    /// Gives the directory all that it had under the old record.
    func undo() throws(StoreError) {
        let (old, new) = (try keys(step.oldRecord), try keys(step.newRecord))
        let attributes = try RekeyAttributes.encrypted(
            step.attributes, from: new.attributeKey, to: old.attributeKey)
        try make(
            Change(oldKeys: new, newKeys: old, newRecord: step.oldRecord, attributes: attributes, isUndoing: true))
    }

    private func make(_ change: Change) throws(StoreError) {
        let place = try RekeyPlace.at(step.path, notes)
        try withExtendedLifetime(place) { () throws(StoreError) in try make(change, in: place) }
    }

    private func make(_ change: Change, in place: RekeyPlace) throws(StoreError) {
        let directory = place.descriptor
        let (record, status) = try OpenDirectory.readRecord(of: directory)
        guard record == step.oldRecord || record == step.newRecord else {
            throw .damaged("vaultfs.rekey: the directory has another record")
        }
        let renamings = try renamings(change, in: directory)
        try writeSidecars(of: renamings, in: directory)
        try rename(renamings, in: directory)
        try removeSidecars(change, in: directory)
        try replaceAttributes(change, of: directory)
        if record != change.newRecord { try replaceRecord(change, of: directory, like: status) }
        // What a kill has left of this step: a mount would sweep it, and move the times. In the root it may be others'.
        if !step.path.isEmpty { for entry in try place.leftovers() { OpenDirectory.remove(entry, from: directory) } }
        // Best effort: another's directory keeps the times of the change.
        futimens(directory.fd, step.times.timespecs)
        try directory.synchronize(dataOnly: false)
    }

    private func keys(_ bytes: [UInt8]) throws(StoreError) -> DirectoryKeys {
        let record: DirectoryRecord
        do throws(FormatError) { record = try DirectoryRecord.parse(bytes, epochs: keyRing.epochs) } catch {
            throw StoreError(error)
        }
        guard record.isRoot == step.path.isEmpty else { throw .damaged("vaultfs.rekey: a root's record elsewhere") }
        return try record.openKeys(keyRing)
    }

    /// The entries whose names authenticate under the old secret; others are of the new one, or of nobody's.
    /// - Throws: `.damaged` for an entry that is the vault's and has lost its name: it would not get it back.
    private func renamings(_ change: Change, in directory: Descriptor) throws(StoreError) -> [Renaming] {
        let names = RekeyNames(directory: directory, keyRing: keyRing)
        var renamings: [Renaming] = []
        for entry in try directory.allEntries() where RekeyNames.isObject(entry) {
            let found: (name: [UInt8], key: Int)?
            do throws(StoreError) {
                found = try names.name(of: entry, under: [change.oldKeys, change.newKeys])
            } catch .damaged(let reason) {
                guard change.isUndoing else { throw .damaged(reason) }
                // It was not given another name either.
                continue
            }
            guard let found, found.key == 0 else { continue }
            do throws(FormatError) {
                renamings.append(
                    Renaming(entry: entry, encoded: try EntryName.encode(found.name, keys: change.newKeys)))
            } catch {
                throw StoreError(error)
            }
        }
        return renamings
    }

    /// They are durable when this returns.
    private func writeSidecars(of renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        var hasSidecars = false
        for renaming in renamings {
            guard let blob = renaming.encoded.sidecarBlob else { continue }
            hasSidecars = true
            // One that was written before, by this step or by what it undoes.
            if directory.sidecarBlob(of: renaming.encoded.entry) == blob { continue }
            try writeSidecar(of: renaming.encoded.entry, blob, insteadOf: renaming.entry, in: directory)
        }
        if hasSidecars { try directory.synchronize(dataOnly: false) }
    }

    private func writeSidecar(
        of entry: [UInt8], _ blob: [UInt8], insteadOf old: [UInt8], in directory: Descriptor
    ) throws(StoreError) {
        let status = try directory.status(of: EntryName.sidecar(of: old))
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try before(.writeSidecar)
        do throws(StoreError) {
            try directory.makeFile(temporary, of: blob, like: status)
            try OpenDirectory.rename(
                temporary, from: directory.fd, to: directory.fd, as: EntryName.sidecar(of: entry), flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
    }

    private func rename(_ renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        for renaming in renamings {
            try before(.renameName)
            do throws(StoreError) {
                try OpenDirectory.rename(
                    renaming.entry, from: directory.fd, to: directory.fd, as: renaming.encoded.entry,
                    flags: linux_RENAME_NOREPLACE)
            } catch .system(.fileExists) {
                // Nobody but who knows the new secret can have made it: it is a copy, and what is here stays for 'verify'.
            } catch .system(let errno) where !StoreError.system(errno).endsRekey {
                throw .damaged("\(RekeyNames.shown(renaming.entry)) cannot be renamed: \(errno)")
            }
        }
        // No sidecar goes before its entry has gone for good.
        if !renamings.isEmpty { try directory.synchronize(dataOnly: false) }
    }

    private func removeSidecars(_ change: Change, in directory: Descriptor) throws(StoreError) {
        for entry in try directory.allEntries() where EntryName.kind(of: entry) == .sidecar {
            guard try isOrphaned(entry, change, in: directory) else { continue }
            try before(.removeSidecar)
            do throws(StoreError) {
                try withCString(entry) { (name) throws(StoreError) in
                    _ = try retrying { unlinkat(directory.fd, name, 0) }
                }
            } catch {
                if !change.isUndoing { throw error }
            }
        }
    }

    private func isOrphaned(
        _ sidecar: [UInt8], _ change: Change, in directory: Descriptor
    ) throws(StoreError) -> Bool {
        do throws(StoreError) { return try directory.isSidecarOrphaned(sidecar) } catch {
            if change.isUndoing { return false }
            throw error
        }
    }

    /// Replaces the attributes of a directory. The old ones are removed first, because there may be no room for both.
    /// The intent holds the new ones. A pack has the same name under both records, and is replaced.
    private func replaceAttributes(_ change: Change, of directory: Descriptor) throws(StoreError) {
        guard !change.attributes.isEmpty else { return }
        let attributes = ExtendedAttributes(directory)
        let codec: AttributeCodec
        do throws(FormatError) { codec = try AttributeCodec(key: change.oldKeys.attributeKey) } catch {
            throw StoreError(error)
        }
        for stored in try attributes.names() where codec.name(ofStored: stored) != nil {
            try before(.removeAttribute)
            try attributes.remove(stored)
        }
        for attribute in change.attributes {
            // Undoing, it may be there still, in a directory that nothing can be set on.
            if (try? attributes.value(of: attribute.name)) == attribute.value { continue }
            try before(.setAttribute)
            try attributes.set(attribute.name, attribute.value, flags: 0)
        }
    }

    private func replaceRecord(
        _ change: Change, of directory: Descriptor, like status: stat
    ) throws(StoreError) {
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try before(.writeRecord)
        do throws(StoreError) {
            // The names and attributes before the record by which they are read.
            try directory.synchronize(dataOnly: false)
            try directory.makeFile(temporary, of: change.newRecord, like: status)
            try before(.placeRecord)
            try OpenDirectory.rename(
                temporary, from: directory.fd, to: directory.fd, as: OpenDirectory.recordEntry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
    }
}
