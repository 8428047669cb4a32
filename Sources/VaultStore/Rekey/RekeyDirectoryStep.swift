internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// One step of a rekey: replaces the secret of a directory by encrypting its names, then its attributes, and then
/// replacing its record. The step can be undone. Doing and undoing can be repeated, and continue wherever the
/// other was stopped.
struct RekeyDirectoryStep {
    private struct Renaming {
        let entry: [UInt8]
        let encoded: EntryName.Encoded
    }

    private struct Change {
        let oldKeys: DirectoryKeys
        let newKeys: DirectoryKeys
        let newRecord: [UInt8]
        let attributes: [RekeyIntent.Attribute]
        /// Undoing leaves as a leftover what cannot be removed, if nothing is lost by that.
        let isUndoing: Bool
    }

    let step: RekeyIntent.Directory
    let context: RekeyContext

    /// - Parameter isUndoing: gives the directory back everything that it had under the old record.
    func perform(isUndoing: Bool) throws(StoreError) {
        let (old, new) = (try keys(step.oldRecord), try keys(step.newRecord))
        let directory = try RekeyDirectory.at(step.path, context)
        guard isUndoing else {
            return try make(
                Change(
                    oldKeys: old, newKeys: new, newRecord: step.newRecord, attributes: step.attributes,
                    isUndoing: false), in: directory)
        }
        let attributes = try RekeyCopies.encrypted(step.attributes, from: new.attributeKey, to: old.attributeKey)
        try make(
            Change(
                oldKeys: new, newKeys: old, newRecord: step.oldRecord, attributes: attributes, isUndoing: true),
            in: directory)
    }

    private func keys(_ bytes: [UInt8]) throws(StoreError) -> DirectoryKeys {
        let record = try context.keyRing.parseRecord(bytes)
        guard record.isRoot == step.path.isEmpty else { throw .damaged("vaultfs.rekey: a root's record elsewhere") }
        return try record.openKeys(context.keyRing)
    }

    private func make(_ change: Change, in rekeyed: RekeyDirectory) throws(StoreError) {
        let directory = rekeyed.descriptor
        let (record, status) = try OpenDirectory.readRecord(of: directory)
        guard record == step.oldRecord || record == step.newRecord else {
            throw .damaged("vaultfs.rekey: the directory has another record")
        }
        let renamings = try renamings(change, in: rekeyed)
        try writeSidecars(of: renamings, in: directory)
        try rename(renamings, in: directory)
        try removeSidecars(change, in: directory)
        try replaceAttributes(change, of: directory)
        if record != change.newRecord {
            // Names and attributes must be on disk before the record by which they are read.
            try directory.synchronize(dataOnly: false)
            try context.install(
                change.newRecord, as: OpenDirectory.recordEntry, in: directory, like: status, writing: .writeRecord,
                renaming: .renameRecord)
        }
        // Remove the leftovers of a killed step. A mount would, and change the times. Those in the root may not be ours.
        if !step.path.isEmpty {
            for entry in try rekeyed.leftovers() { OpenDirectory.remove(entry, from: directory) }
        }
        // Best effort: only the owner can set times.
        futimens(directory.fd, timespecs(step.times))
        try directory.synchronize(dataOnly: false)
    }

    /// Of atime and mtime in seconds and nanoseconds.
    private func timespecs(_ times: [UInt64]) -> [timespec] {
        stride(from: 0, to: times.count - 1, by: 2).map {
            timespec(tv_sec: Int(truncatingIfNeeded: times[$0]), tv_nsec: Int(clamping: times[$0 + 1]))
        }
    }

    /// Returns the entries whose names authenticate under the old secret. Other entries have their new names already, or
    /// do not belong to the vault.
    /// - Throws: `.damaged` for an entry of the vault whose name is lost. The step could not give it a new one.
    private func renamings(_ change: Change, in directory: RekeyDirectory) throws(StoreError) -> [Renaming] {
        var renamings: [Renaming] = []
        for entry in try directory.descriptor.allEntries() where EntryName.isObject(entry) {
            let found: (name: [UInt8], key: Int)?
            do throws(StoreError) {
                found = try directory.name(of: entry, under: [change.oldKeys, change.newKeys])
            } catch .damaged(let reason) {
                guard change.isUndoing else { throw .damaged(reason) }
                // The step has not renamed it either.
                continue
            }
            guard let found, found.key == 0 else { continue }
            let encoded = try StoreError.ofFormat { () throws(FormatError) in
                try EntryName.encode(found.name, keys: change.newKeys)
            }
            renamings.append(Renaming(entry: entry, encoded: encoded))
        }
        return renamings
    }

    /// Writes the sidecars of the new names. They are durable when this returns.
    private func writeSidecars(of renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        var hasSidecars = false
        for renaming in renamings {
            guard let blob = renaming.encoded.sidecarBlob else { continue }
            hasSidecars = true
            // Written before the step was stopped.
            if directory.sidecarBlob(of: renaming.encoded.entry) == blob { continue }
            try context.install(
                blob, as: EntryName.sidecar(of: renaming.encoded.entry), in: directory,
                like: try directory.status(of: EntryName.sidecar(of: renaming.entry)), writing: .writeSidecar)
        }
        if hasSidecars { try directory.synchronize(dataOnly: false) }
    }

    private func rename(_ renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        for renaming in renamings {
            try context.before(.renameName)
            do throws(StoreError) {
                try OpenDirectory.rename(
                    renaming.entry, from: directory.fd, to: directory.fd, as: renaming.encoded.entry,
                    flags: linux_RENAME_NOREPLACE)
            } catch .system(.fileExists) {
                // Only someone who knows the new secret can have made it, so it is a copy. Both stay for 'verify'.
            } catch .system(let errno) where !StoreError.system(errno).endsRekey {
                throw .damaged("\(RekeyDirectory.shown(renaming.entry)) cannot be renamed: \(errno)")
            }
        }
        // The renames must be on disk before the old sidecars go.
        if !renamings.isEmpty { try directory.synchronize(dataOnly: false) }
    }

    private func removeSidecars(_ change: Change, in directory: Descriptor) throws(StoreError) {
        for entry in try directory.allEntries() where EntryName.kind(of: entry) == .sidecar {
            do throws(StoreError) {
                guard try directory.isSidecarOrphaned(entry) else { continue }
            } catch {
                if change.isUndoing { continue }
                throw error
            }
            try context.before(.removeSidecar)
            do throws(StoreError) { try directory.remove(entry) } catch {
                if !change.isUndoing { throw error }
            }
        }
    }

    /// Replaces the attributes of a directory. The old ones are removed first, because there may be no room for both.
    /// The intent holds the new ones. A pack has the same name under both records, and is replaced.
    private func replaceAttributes(_ change: Change, of directory: Descriptor) throws(StoreError) {
        guard !change.attributes.isEmpty else { return }
        let attributes = ExtendedAttributes(directory)
        let codec = try StoreError.ofFormat { () throws(FormatError) in
            try AttributeCodec(key: change.oldKeys.attributeKey)
        }
        for stored in try attributes.names() where codec.name(ofStored: stored) != nil {
            try context.before(.removeAttribute)
            try attributes.remove(stored)
        }
        for attribute in change.attributes {
            // Undoing a step that failed here, it may still be there, and setting it may still fail.
            if (try? attributes.value(of: attribute.name)) == attribute.value { continue }
            try context.before(.setAttribute)
            try attributes.set(attribute.name, attribute.value, flags: 0)
        }
    }
}
