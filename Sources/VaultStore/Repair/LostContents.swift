internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Moves the content of a directory whose names are lost to `lost+found`.
struct LostContents {
    private let store: Store
    private let lostAndFound: LostAndFound

    init(of store: Store, to lostAndFound: LostAndFound) {
        self.store = store
        self.lostAndFound = lostAndFound
    }

    /// Gives a directory that has no record a new one. So the next repair recognises it as one of this vault, even if this
    /// repair is interrupted.
    func mark(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try parent.inner(entry)
        do throws(StoreError) {
            _ = try directory.status(of: OpenDirectory.recordEntry)
        } catch .system(.noSuchFileOrDirectory) {
            try OpenDirectory.makeRecord(of: directory, class: .complete, mode: 0o600, in: store)
        }
    }

    /// Empties the directory `entry` of `parent`, keeps its record in `lost+found`, and removes it.
    /// - Throws: `.damaged` if something stays in it. Then the record stays too.
    func empty(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try parent.inner(entry)
        let digits = Array(try LostObject.digits(of: entry).utf8)
        let entries = try directory.allEntries()
        try list(entries, in: directory, as: Array("directory-".utf8) + digits)
        try move(entries, from: directory)
        let left = try directory.allEntries().count { $0 != OpenDirectory.recordEntry }
        guard left == 0 else { throw Self.stay(left) }
        guard try !hasAttributes(directory) else { throw .damaged("its attributes do not authenticate, and stay") }
        try lostAndFound.synchronize()
        if !isMarked(directory) {
            try lostAndFound.keepCopy(
                of: OpenDirectory.recordEntry, from: directory, as: Array("directory-record-".utf8) + digits)
        }
        let isLong = EntryName.kind(of: entry) == .longName
        if isLong {
            let name = Array("directory-".utf8) + digits + Array(".name".utf8)
            try lostAndFound.keepCopy(of: EntryName.sidecar(of: entry), from: parent, as: name)
        }
        try remove(entry, in: parent)
        if isLong { parent.removeQuietly(EntryName.sidecar(of: entry)) }
    }

    /// Removes a directory under a temporary name. If that is interrupted, the next mount completes it.
    private func remove(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let temporary = try VaultDirectory.temporaryEntry()
        try OpenDirectory.rename(
            entry, from: parent.fd, to: parent.fd, as: temporary, flags: linux_RENAME_NOREPLACE)
        OpenDirectory.remove(temporary, from: parent)
    }

    /// Returns true if the record authenticates. The directory's own record was lost, so `mark` has made this one.
    private func isMarked(_ directory: Descriptor) -> Bool {
        (try? OpenDirectory.record(of: directory, store.keyRing))?.isRoot == false
    }

    /// Lists the new name of each entry before any is moved. If the lost record is found again, for instance in a backup, it
    /// decrypts the entries of the list (FileFormat, Store-32).
    private func list(_ entries: [[UInt8]], in directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        try lostAndFound.list(
            entries.compactMap { entry in
                guard EntryName.isObject(entry),
                    let object = LostObject.find(entry, in: directory, store.keyRing)
                else { return nil }
                return (entry, object.name)
            }, as: name)
    }

    /// Moves everything in the root that has no name under the root's new record.
    /// - Throws: `.damaged` if something stays hidden.
    func moveFromRoot() throws(StoreError) {
        let pinned = try Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: linux_O_PATH | O_DIRECTORY)
        let root = try OpenDirectory.open(pinned, isRoot: true, in: store)
        let listing = try root.reopenedForListing().descriptor
        let nameless = try listing.allEntries().filter { !Self.hasName($0, in: root) }
        try list(nameless, in: listing, as: Array("root".utf8))
        try move(nameless, from: listing)
        try keepAside(DamagedRoot.recordPrefix)
        let left = try listing.allEntries().count { entry in
            EntryName.isObject(entry) && !Self.hasName(entry, in: root)
        }
        guard left == 0 else { throw Self.stay(left) }
    }

    /// Moves the damaged objects that stepped aside in the root, under names that begin with `prefix`.
    func keepAside(_ prefix: [UInt8]) throws(StoreError) {
        for entry in try store.root.allEntries() where entry.starts(with: prefix) {
            try lostAndFound.keep(entry, from: store.root, as: entry)
        }
    }

    private static func hasName(_ entry: [UInt8], in root: OpenDirectory) -> Bool {
        EntryName.decode(entry, sidecarBlob: root.sidecarBlob(of: entry), keys: root.keys) != nil
    }

    private static func stay(_ count: Int) -> StoreError {
        .damaged(
            "\(count) \(count == 1 ? "entry does" : "entries do") not authenticate, and \(count == 1 ? "stays" : "stay")"
        )
    }

    /// Moves the entries that authenticate. Removes sidecars whose entry a killed repair has moved.
    private func move(_ entries: [[UInt8]], from directory: Descriptor) throws(StoreError) {
        for entry in entries {
            switch EntryName.kind(of: entry) {
            case .name, .longName:
                do throws(StoreError) { try lostAndFound.take(entry, from: directory) } catch .damaged {}
            case .sidecar:
                if (try? directory.isSidecarOrphaned(entry)) == true { OpenDirectory.remove(entry, from: directory) }
            case .temporary:
                OpenDirectory.remove(entry, from: directory)
            case .reserved: break
            }
        }
    }

    /// Returns true if the directory has encrypted attributes. Their key is lost with the record.
    private func hasAttributes(_ directory: Descriptor) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try ExtendedAttributes(directory).names().contains { $0.starts(with: Array("user.vaultfs.".utf8)) }
        } catch .system(.notSupported) {
            return false
        }
    }
}
