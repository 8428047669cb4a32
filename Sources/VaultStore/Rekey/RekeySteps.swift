internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Makes steps of a rekey that take several renames survive a kill: `vaultfs.rekey` in the root of a vault that is open for
/// writing describes a step until it is done or undone.
struct RekeySteps: Sendable {
    private static let entry = Array("vaultfs.rekey".utf8)
    /// Bytes for the file itself, the record, and the growth of a directory.
    private static let leastSpace = 1 << 18

    let root: Descriptor
    let keyRing: KeyRing
    let before: RekeyHook
    private let cipher: SivCipher

    /// Nil if no rekey is unfinished. Then the vault has no such file.
    init?(root: Descriptor, keyRing: KeyRing, before: @escaping RekeyHook = { _ in }) {
        guard let cipher = keyRing.intentCipher else { return nil }
        (self.root, self.keyRing, self.before, self.cipher) = (root, keyRing, before, cipher)
    }

    /// Returns true if a step is incomplete.
    static func isIncomplete(in root: Descriptor) throws(StoreError) -> Bool {
        try root.statusIfPresent(of: entry) != nil
    }

    /// Throws if a step is incomplete: nobody may read the vault then. The error names the directory of the step.
    static func checkComplete(in root: Descriptor, keyRing: KeyRing) throws(StoreError) {
        guard try isIncomplete(in: root), let steps = RekeySteps(root: root, keyRing: keyRing) else { return }
        let directory = (try? steps.read()).flatMap { $0 }.map { " in \($0.shownDirectory)" } ?? ""
        throw .damaged(
            "vaultfs.rekey: a step of a rekey\(directory) is half done: it is completed when the vault is opened for writing"
        )
    }

    /// Completes or undoes the step that a killed rekey has left, in a vault that is opened for writing.
    /// - Throws: `.damaged` for a file that does not authenticate, and if the step can be neither done nor undone. Then the
    ///   file stays.
    static func settle(in root: Descriptor, keyRing: KeyRing, writerLock: WriterLock?) throws(StoreError) {
        let steps = RekeySteps(root: root, keyRing: keyRing) { (_) throws(StoreError) in try writerLock?.verify() }
        guard let steps, let intent = try steps.read() else { return }
        let before = try root.status()
        // The next rekey tries again what was undone, and reports why it fails.
        _ = try steps.settle(intent)
        futimens(root.fd, [before.st_atim, before.st_mtim])
    }

    /// Does a step: writes the intent, does the step, and removes the intent.
    /// - Parameter space: bytes that the step may need. Nothing is begun if they are not free.
    /// - Throws: `ENOSPC` before anything is changed. After any other error the step is undone, unless the file exists.
    func carryOut(_ intent: RekeyIntent, space: Int = 0) throws(StoreError) {
        let reserve = try reserve(space + Self.leastSpace)
        defer { root.removeQuietly(reserve) }
        try write(intent)
        if let failure = try settle(intent) { throw failure }
    }

    /// Does the step or undoes it, and removes the intent. The intent stays until one of them is complete. Both can
    /// continue what a kill leaves.
    /// - Returns: the error because of which the step was undone.
    private func settle(_ intent: RekeyIntent) throws(StoreError) -> StoreError? {
        var failure: StoreError?
        do throws(StoreError) {
            try performInReserve(intent)
        } catch {
            // Without memory undoing would fail as well. Without space it may succeed.
            if error.endsRekey && !error.isNoSpace { throw error }
            failure = error
            do throws(StoreError) { try perform(intent, isUndoing: true) } catch let second {
                if error.isNoSpace { throw error }
                throw .damaged(
                    "vaultfs.rekey: a step in \(intent.shownDirectory) can neither be done (\(error.reason)) nor undone "
                        + "(\(second.reason))")
            }
        }
        try before(.removeIntent)
        try root.remove(Self.entry)
        // Must be durable before anything that it names is renamed or removed.
        try root.synchronize(dataOnly: false)
        if case .links(let step) = intent { root.removeQuietly(step.temporary) }
        return failure
    }

    /// Makes a temporary file of the size that a step needs. Removing it makes room if the step runs out of space.
    private func reserve(_ space: Int) throws(StoreError) -> [UInt8] {
        let temporary = try VaultDirectory.temporaryEntry()
        let file = try Descriptor(at: root.fd, temporary, flags: O_CREAT | O_EXCL | O_WRONLY, mode: 0o600)
        try root.withTemporary(temporary) { () throws(StoreError) in
            do throws(StoreError) { try retrying { linux_fallocate(file.fd, 0, 0, Int64(space)) } } catch {
                // A store without fallocate(2) cannot reserve space.
                if error.isNoSpace { throw error }
            }
        }
        return temporary
    }

    private func performInReserve(_ intent: RekeyIntent) throws(StoreError) {
        do throws(StoreError) {
            try perform(intent, isUndoing: false)
        } catch {
            guard error.isNoSpace else { throw error }
            // Remove the temporary files in the root that the step does not need: one is the reserve.
            for entry in try root.allEntries() where EntryName.kind(of: entry) == .temporary {
                if case .links(let step) = intent, step.temporary == entry { continue }
                root.removeQuietly(entry)
            }
            try perform(intent, isUndoing: false)
        }
    }

    private func perform(_ intent: RekeyIntent, isUndoing: Bool) throws(StoreError) {
        switch intent {
        case .directory(let step): try RekeyDirectoryStep(step, in: self, isUndoing: isUndoing).perform()
        case .links(let step):
            let step = RekeyLinksStep(step: step, steps: self)
            if isUndoing { try step.undo() } else { try step.perform() }
        }
    }

    // MARK: The file

    private func read() throws(StoreError) -> RekeyIntent? {
        let file: Descriptor
        do throws(StoreError) {
            file = try Descriptor(at: root.fd, Self.entry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        } catch .system(.tooManySymbolicLinkLevels) {
            throw .damaged("vaultfs.rekey: not a regular file")
        }
        guard try file.status().st_mode & S_IFMT == S_IFREG,
            let bytes = try file.readToEnd(limit: RekeyIntent.maximumSize)
        else { throw .damaged("vaultfs.rekey: not a regular file of a valid size") }
        return try StoreError.ofFormat { () throws(FormatError) in
            try RekeyIntent.parse(bytes, epoch: keyRing.epochs.current, cipher: cipher)
        }
    }

    private func write(_ intent: RekeyIntent) throws(StoreError) {
        let bytes = try StoreError.ofFormat { () throws(FormatError) in
            try intent.serialized(epoch: keyRing.epochs.current, cipher: cipher)
        }
        guard bytes.count <= RekeyIntent.maximumSize else { throw .system(.fileTooLarge) }
        try install(
            bytes, as: Self.entry, in: root, like: try root.status(of: Array(VaultDirectory.configurationEntry.utf8)),
            writing: .writeIntent, renaming: .renameIntent)
        do throws(StoreError) { try root.synchronize(dataOnly: false) } catch {
            // Nothing was begun.
            root.removeQuietly(Self.entry)
            throw error
        }
    }
}

extension RekeySteps {
    /// Gives `entry` to a new file of these bytes, which is durable. The directory is not synchronized.
    /// - Parameters:
    ///   - status: owner and mode of the file.
    ///   - writing, renaming: passed to `before` ahead of the file's creation and of its rename.
    func install(
        _ bytes: [UInt8], as entry: [UInt8], in directory: Descriptor, like status: stat, writing: RekeyPoint,
        renaming: RekeyPoint? = nil
    ) throws(StoreError) {
        let temporary = try VaultDirectory.temporaryEntry()
        try before(writing)
        try directory.install(bytes, as: entry, by: temporary, owner: Owner(status), mode: status.st_mode & 0o7777) {
            () throws(StoreError) in
            if let renaming { try before(renaming) }
        }
    }
}

/// One step of a rekey: replaces the secret of a directory by encrypting its names, then its attributes, and then
/// replacing its record. Undoing it is the opposite step. Doing and undoing can be repeated, and continue wherever the
/// other was stopped.
struct RekeyDirectoryStep {
    private typealias Renaming = (entry: [UInt8], encoded: EntryName.Encoded)

    private let steps: RekeySteps
    private var step: RekeyIntent.Directory
    private var oldKeys, newKeys: DirectoryKeys
    /// Undoing leaves as a leftover what cannot be removed, if nothing is lost by that.
    private let isUndoing: Bool

    /// - Parameter isUndoing: gives the directory back everything that it had under the old record.
    init(_ step: RekeyIntent.Directory, in steps: RekeySteps, isUndoing: Bool) throws(StoreError) {
        (self.step, self.steps, self.isUndoing) = (step, steps, isUndoing)
        func keys(_ bytes: [UInt8]) throws(StoreError) -> DirectoryKeys {
            let record = try steps.keyRing.parseRecord(bytes)
            guard record.isRoot == step.path.isEmpty else { throw .damaged("vaultfs.rekey: a root's record elsewhere") }
            return try record.openKeys(steps.keyRing)
        }
        (oldKeys, newKeys) = (try keys(step.oldRecord), try keys(step.newRecord))
        guard isUndoing else { return }
        swap(&oldKeys, &newKeys)
        swap(&self.step.oldRecord, &self.step.newRecord)
        self.step.attributes = try Rekeyer.encrypted(
            step.attributes, from: oldKeys.attributeKey, to: newKeys.attributeKey)
    }

    func perform() throws(StoreError) {
        let rekeyed = try steps.directory(at: step.path)
        let directory = rekeyed.descriptor
        let (record, status) = try OpenDirectory.readRecord(of: directory)
        guard record == step.oldRecord || record == step.newRecord else {
            throw .damaged("vaultfs.rekey: the directory has another record")
        }
        let renamings = try renamings(in: rekeyed)
        try writeSidecars(of: renamings, in: directory)
        try rename(renamings, in: directory)
        try removeSidecars(in: directory)
        try replaceAttributes(of: directory)
        if record != step.newRecord {
            // Names and attributes must be on disk before the record by which they are read.
            try directory.synchronize(dataOnly: false)
            try steps.install(
                step.newRecord, as: OpenDirectory.recordEntry, in: directory, like: status, writing: .writeRecord,
                renaming: .renameRecord)
        }
        // Remove the leftovers of a killed step. A mount would, and change the times. Those in the root may not be ours.
        if !step.path.isEmpty {
            for entry in try rekeyed.leftovers() { OpenDirectory.remove(entry, from: directory) }
        }
        // Best effort: only the owner can set times.
        let times = [0, 2].map {
            timespec(tv_sec: Int(truncatingIfNeeded: step.times[$0]), tv_nsec: Int(clamping: step.times[$0 + 1]))
        }
        futimens(directory.fd, times)
        try directory.synchronize(dataOnly: false)
    }

    /// Returns the entries whose names authenticate under the old secret. Other entries have their new names already, or
    /// do not belong to the vault.
    /// - Throws: `.damaged` for an entry of the vault whose name is lost. The step could not give it a new one.
    private func renamings(in directory: RekeyDirectory) throws(StoreError) -> [Renaming] {
        var renamings: [Renaming] = []
        for entry in try directory.descriptor.allEntries() where EntryName.isObject(entry) {
            let found: (name: [UInt8], key: Int)?
            do throws(StoreError) {
                found = try directory.name(of: entry, under: [oldKeys, newKeys])
            } catch .damaged(let reason) {
                // If the step is undone, it has not renamed this entry either.
                if isUndoing { continue }
                throw .damaged(reason)
            }
            guard let found, found.key == 0 else { continue }
            let encoded = try StoreError.ofFormat { () throws(FormatError) in
                try EntryName.encode(found.name, keys: newKeys)
            }
            renamings.append((entry, encoded))
        }
        return renamings
    }

    /// Writes the sidecars of the new names. They are durable when this returns.
    private func writeSidecars(of renamings: [Renaming], in directory: Descriptor) throws(StoreError) {
        var hasSidecars = false
        for (entry, encoded) in renamings {
            guard let blob = encoded.sidecarBlob else { continue }
            hasSidecars = true
            // Written before the step was stopped.
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
                // Only someone who knows the new secret can have made it, so it is a copy. Both stay for 'verify'.
            } catch .system(let errno) where !StoreError.system(errno).endsRekey {
                throw .damaged("\(RekeyDirectory.shown(entry)) cannot be renamed: \(errno)")
            }
        }
        // The renames must be on disk before the old sidecars go.
        if !renamings.isEmpty { try directory.synchronize(dataOnly: false) }
    }

    private func removeSidecars(in directory: Descriptor) throws(StoreError) {
        for entry in try directory.allEntries() where EntryName.kind(of: entry) == .sidecar {
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

    /// Replaces the attributes of a directory. The old ones are removed first, because there may be no room for both.
    /// The intent holds the new ones. A pack has the same name under both records, and is replaced.
    private func replaceAttributes(of directory: Descriptor) throws(StoreError) {
        guard !step.attributes.isEmpty else { return }
        let attributes = ExtendedAttributes(directory)
        let codec = try StoreError.ofFormat { () throws(FormatError) in try AttributeCodec(key: oldKeys.attributeKey) }
        for stored in try attributes.names() where codec.name(ofStored: stored) != nil {
            try steps.before(.removeAttribute)
            try attributes.remove(stored)
        }
        for attribute in step.attributes {
            // Undoing a step that failed here, it may still be there, and setting it may still fail.
            if (try? attributes.value(of: attribute.name)) == attribute.value { continue }
            try steps.before(.setAttribute)
            try attributes.set(attribute.name, attribute.value, flags: 0)
        }
    }
}

extension RekeyIntent {
    /// The backing directory that is being changed, or one of them, for messages.
    fileprivate var shownDirectory: String {
        let path: [[UInt8]] =
            switch self {
            case .directory(let step): step.path
            case .links(let step): step.paths.first?.dropLast() ?? []
            }
        return path.isEmpty ? "the vault's root" : path.map(RekeyDirectory.shown).joined(separator: "/")
    }
}
