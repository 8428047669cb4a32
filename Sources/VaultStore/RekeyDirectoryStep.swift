internal import BackingStore
internal import CLinux
internal import Glibc
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Gives a directory another secret: its names, its attributes, and then its record. It may be done any number of times, and
/// goes on from wherever it was stopped.
struct RekeyDirectoryStep {
    private struct Renaming {
        let entry: [UInt8]
        let encoded: EntryName.Encoded
    }

    private let step: RekeyIntent.Directory
    private let root: Descriptor
    private let keyRing: KeyRing
    private let before: RekeyHook

    init(_ step: RekeyIntent.Directory, root: Descriptor, keyRing: KeyRing, before: @escaping RekeyHook) {
        self.step = step
        self.root = root
        self.keyRing = keyRing
        self.before = before
    }

    func perform() throws(StoreError) {
        let directory = try root.directory(at: step.path)
        let (record, status) = try OpenDirectory.readRecord(of: directory)
        guard record == step.oldRecord || record == step.newRecord else {
            throw .damaged("vaultfs.rekey: the directory has another record")
        }
        let (old, new) = (try keys(step.oldRecord), try keys(step.newRecord))
        try rename(try renamings(in: directory, old, new), in: directory)
        try removeSidecars(in: directory)
        try replaceAttributes(of: directory, old)
        if record != step.newRecord { try replaceRecord(of: directory, like: status) }
        try retrying { futimens(directory.fd, [time(0), time(2)]) }
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

    private func time(_ index: Int) -> timespec {
        timespec(tv_sec: Int(truncatingIfNeeded: step.times[index]), tv_nsec: Int(clamping: step.times[index + 1]))
    }

    /// The entries whose names authenticate under the old secret; others are of the new one, or of nobody's. Sidecars of the
    /// new ones are durable when this returns.
    private func renamings(
        in directory: Descriptor, _ old: DirectoryKeys, _ new: DirectoryKeys
    ) throws(StoreError) -> [Renaming] {
        var renamings: [Renaming] = []
        var hasSidecars = false
        for entry in try directory.allEntries() {
            let kind = EntryName.kind(of: entry)
            guard kind == .name || kind == .longName else { continue }
            let blob = kind == .longName ? directory.sidecarBlob(of: entry) : nil
            guard let name = EntryName.decode(entry, sidecarBlob: blob, keys: old) else { continue }
            let encoded: EntryName.Encoded
            do throws(FormatError) { encoded = try EntryName.encode(name, keys: new) } catch { throw StoreError(error) }
            if let blob = encoded.sidecarBlob {
                try writeSidecar(of: encoded.entry, blob, insteadOf: entry, in: directory)
                hasSidecars = true
            }
            renamings.append(Renaming(entry: entry, encoded: encoded))
        }
        if hasSidecars { try directory.synchronize(dataOnly: false) }
        return renamings
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
            }
        }
        // No sidecar goes before its entry has gone for good.
        if !renamings.isEmpty { try directory.synchronize(dataOnly: false) }
    }

    private func removeSidecars(in directory: Descriptor) throws(StoreError) {
        for entry in try directory.allEntries() where EntryName.kind(of: entry) == .sidecar {
            let owner = Array(entry.dropLast(".name".utf8.count))
            do throws(StoreError) {
                _ = try directory.status(of: owner)
            } catch .system(.noSuchFileOrDirectory) {
                try before(.removeSidecar)
                _ = withCString(entry) { unlinkat(directory.fd, $0, 0) }
            }
        }
    }

    /// The old ones go first: there may be no room for both. The intent holds what is to be set.
    private func replaceAttributes(of directory: Descriptor, _ old: DirectoryKeys) throws(StoreError) {
        guard !step.attributes.isEmpty else { return }
        let attributes = ExtendedAttributes(directory)
        let codec: AttributeCodec
        do throws(FormatError) { codec = try AttributeCodec(key: old.attributeKey) } catch { throw StoreError(error) }
        for stored in try attributes.names() where codec.name(ofStored: stored) != nil {
            try before(.removeAttribute)
            try attributes.remove(stored)
        }
        for attribute in step.attributes {
            try before(.setAttribute)
            try attributes.set(attribute.name, attribute.value, flags: 0)
        }
    }

    private func replaceRecord(of directory: Descriptor, like status: stat) throws(StoreError) {
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try before(.writeRecord)
        do throws(StoreError) {
            // The names and attributes before the record by which they are read.
            try directory.synchronize(dataOnly: false)
            try directory.makeFile(temporary, of: step.newRecord, like: status)
            try before(.placeRecord)
            try OpenDirectory.rename(
                temporary, from: directory.fd, to: directory.fd, as: OpenDirectory.recordEntry, flags: 0)
        } catch {
            _ = withCString(temporary) { unlinkat(directory.fd, $0, 0) }
            throw error
        }
    }
}
