internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// One step of a rekey: replaces the secret of a directory by encrypting its names, then its attributes, and then
/// replacing its record. The opposite step undoes it. Both can be repeated, and continue where the other was stopped.
struct RekeyDirectoryStep {
    private typealias Renaming = (entry: Component, encoded: EntryName.Encoded)

    private let steps: RekeySteps
    private var step: RekeyIntent.Directory
    private var oldKeys, newKeys: DirectoryKeys
    /// True to undo the step, which leaves harmless leftovers if they cannot be removed.
    private let isUndoing: Bool

    /// - Parameter isUndoing: true to restore everything that the directory had under the old record.
    init(_ step: RekeyIntent.Directory, in steps: RekeySteps, isUndoing: Bool) throws(StoreError) {
        (self.step, self.steps, self.isUndoing) = (step, steps, isUndoing)
        func keys(_ bytes: [UInt8]) throws(StoreError) -> DirectoryKeys {
            let record = try steps.keyRing.parseRecord(bytes)
            guard record.isRoot == step.path.isEmpty else { throw .damaged("vaultfs.rekey: a root's record elsewhere") }
            return try record.unwrapKeys(steps.keyRing)
        }
        (oldKeys, newKeys) = (try keys(step.oldRecord), try keys(step.newRecord))
        guard isUndoing else { return }
        swap(&oldKeys, &newKeys)
        swap(&self.step.oldRecord, &self.step.newRecord)
        self.step.attributes = try RekeyedAttributes.encrypted(
            step.attributes, from: oldKeys.attributeKey, to: newKeys.attributeKey)
    }

    func perform() throws(StoreError) {
        let rekeyed = try steps.directory(at: step.path)
        let directory = rekeyed.descriptor
        let record = try OpenDirectory.readRecord(of: directory)
        guard record == step.oldRecord || record == step.newRecord else {
            throw .damaged("vaultfs.rekey: the directory has another record")
        }
        let renamings = try renamings(in: rekeyed)
        try writeSidecars(of: renamings, in: directory)
        try rename(renamings, in: directory)
        try removeSidecars(in: directory)
        try replaceAttributes(of: directory)
        if record != step.newRecord {
            // Sync names and attributes before the record by which they are read.
            try directory.synchronize(dataOnly: false)
            try steps.install(
                step.newRecord, as: OpenDirectory.recordEntry, in: directory,
                like: try directory.status(of: OpenDirectory.recordEntry), isReplacing: true,
                writing: .writeRecord, renaming: .renameRecord)
        }
        // Remove a killed step's leftovers here: a mount would change the times, too. Those in the root may not be
        // ours.
        if !step.path.isEmpty {
            for entry in try rekeyed.leftovers() { OpenDirectory.remove(entry, from: directory) }
        }
        // Best effort, because only the owner can set times.
        let times = [0, 2].map {
            timespec(tv_sec: Int(truncatingIfNeeded: step.times[$0]), tv_nsec: Int(clamping: step.times[$0 + 1]))
        }
        futimens(directory.fd, times)
        try directory.synchronize(dataOnly: false)
    }

    /// Returns the entries whose names authenticate under the old secret. Other entries already have their new names,
    /// or do not belong to the vault.
    /// - Throws: `.damaged` for an entry of the vault with a lost name, because the step could not give it a new one.
    private func renamings(in directory: RekeyDirectory) throws(StoreError) -> [Renaming] {
        var renamings: [Renaming] = []
        for entry in try directory.descriptor.allEntries() where EntryName.isObject(entry.bytes) {
            let found: (name: [UInt8], key: Int)?
            do throws(StoreError) {
                found = try directory.name(of: entry, under: [oldKeys, newKeys])
            } catch .damaged(let reason) {
                // Skip it, because the step to be undone has not renamed this entry either.
                if isUndoing { continue }
                throw .damaged(reason)
            }
            guard let found, found.key == 0 else { continue }
            renamings.append((entry, try StoreError.ofFormat(EntryName.encode(found.name, keys: newKeys))))
        }
        return renamings
    }

    /// Writes the sidecars of the new names, durably.
    private func writeSidecars(of renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        var hasSidecars = false
        for (entry, encoded) in renamings {
            guard let blob = encoded.sidecarBlob else { continue }
            hasSidecars = true
            // The step has written this one before it was stopped.
            if directory.sidecarBlob(of: encoded.entry) == blob { continue }
            try steps.install(
                blob, as: EntryName.sidecar(of: encoded.entry), in: directory,
                like: try directory.status(of: EntryName.sidecar(of: entry)), writing: .writeSidecar)
        }
        if hasSidecars { try directory.synchronize(dataOnly: false) }
    }

    private func rename(_ renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        for (entry, encoded) in renamings {
            try steps.before(.renameName)
            do throws(StoreError) {
                try directory.rename(entry, as: encoded.entry, flags: linux_RENAME_NOREPLACE)
            } catch .system(.fileExists) {
                // Keep both for 'verify'. The other is a copy, because making it takes the new secret.
            } catch .system(let errno) where !StoreError.system(errno).endsRekey {
                throw .damaged("\(RekeyDirectory.shown(entry)) cannot be renamed: \(errno)")
            }
        }
        // Sync the renames before the old sidecars are removed.
        if !renamings.isEmpty { try directory.synchronize(dataOnly: false) }
    }

    private func removeSidecars(in directory: Descriptor) throws(StoreError) {
        for entry in try directory.allEntries() where EntryName.kind(of: entry.bytes) == .sidecar {
            do throws(StoreError) {
                guard try directory.isSidecarOrphaned(entry) else { continue }
            } catch {
                if isUndoing { continue }
                throw error
            }
            try steps.before(.removeSidecar)
            do throws(StoreError) { try directory.remove(entry) } catch { if !isUndoing { throw error } }
        }
    }

    /// Replaces the attributes of a directory. Removes the old ones first, because there may be no room for both, and
    /// the intent has the new ones. A pack has the same name under both records, and is replaced.
    private func replaceAttributes(of directory: Descriptor) throws(StoreError) {
        guard !step.attributes.isEmpty else { return }
        let attributes = ExtendedAttributes(directory)
        let codec = try StoreError.ofFormat(AttributeCodec(key: oldKeys.attributeKey))
        for stored in try attributes.names() where codec.name(ofStored: stored) != nil {
            try steps.before(.removeAttribute)
            try attributes.remove(stored)
        }
        for attribute in step.attributes {
            // When a step that failed here is undone, the attribute may still be there, and setting it may fail again.
            if (try? attributes.value(of: attribute.name)) == attribute.value { continue }
            try steps.before(.setAttribute)
            try attributes.set(attribute.name, attribute.value, flags: 0)
        }
    }
}
