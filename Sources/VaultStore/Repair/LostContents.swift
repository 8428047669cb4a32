internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Moves what a directory holds, whose names are lost, to `lost+found`.
struct LostContents {
    private let store: Store
    private let lostAndFound: LostAndFound

    init(of store: Store, to lostAndFound: LostAndFound) {
        self.store = store
        self.lostAndFound = lostAndFound
    }

    /// Gives a directory that has no record a new one. It has then been emptied or not, but a repair that is cut short
    /// leaves one of this vault, and the next knows it again.
    func mark(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try Descriptor(at: parent.fd, entry, flags: O_RDONLY | O_DIRECTORY)
        do throws(StoreError) {
            _ = try directory.status(of: OpenDirectory.recordEntry)
        } catch .system(.noSuchFileOrDirectory) {
            try LostRecord.make(in: directory, store)
        }
    }

    /// Empties the directory `entry` of `parent`, keeps its record, and removes it.
    /// - Throws: `.damaged` where something stays in it: then the record stays too.
    func empty(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try Descriptor(at: parent.fd, entry, flags: O_RDONLY | O_DIRECTORY)
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
        if isLong { _ = withCString(EntryName.sidecar(of: entry)) { unlinkat(parent.fd, $0, 0) } }
    }

    /// Under a temporary name first: whoever finds it so removes it, with a record or without.
    private func remove(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let temporary = Array(try VaultDirectory.temporaryEntry().utf8)
        try OpenDirectory.rename(
            entry, from: parent.fd, to: parent.fd, as: temporary, flags: linux_RENAME_NOREPLACE)
        OpenDirectory.remove(temporary, from: parent)
    }

    /// True where the record is of this vault: one that is lost is not, so it is the one that `mark` has made.
    private func isMarked(_ directory: Descriptor) -> Bool {
        guard let bytes = try? OpenDirectory.readRecord(of: directory).bytes,
            let record = try? DirectoryRecord.parse(bytes, epochs: store.keyRing.epochs), !record.isRoot
        else { return false }
        return (try? record.openKeys(store.keyRing)) != nil
    }

    /// Notes which entry gets which name here before any is moved: a record that is found again, in a backup say, then
    /// gives the names back (FileFormat, Store-32).
    private func list(_ entries: [[UInt8]], in directory: Descriptor, as name: [UInt8]) throws(StoreError) {
        try lostAndFound.list(
            entries.compactMap { entry in
                guard [.name, .longName].contains(EntryName.kind(of: entry)),
                    let object = LostObject.find(entry, in: directory, store.keyRing)
                else { return nil }
                return (entry, object.name)
            }, as: name)
    }

    /// Moves what has no name under the root's new record.
    /// - Throws: `.damaged` where something stays hidden.
    func moveFromRoot() throws(StoreError) {
        let pinned = try Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: linux_O_PATH | O_DIRECTORY)
        let root = try OpenDirectory.open(pinned, isRoot: true, in: store)
        let listing = try root.reopenedForListing().descriptor
        let nameless = try listing.allEntries().filter { !Self.hasName($0, in: root) }
        try list(nameless, in: listing, as: Array("root".utf8))
        try move(nameless, from: listing)
        try moveStrays(LostRecord.prefix)
        let left = try listing.allEntries().count { entry in
            [.name, .longName].contains(EntryName.kind(of: entry)) && !Self.hasName(entry, in: root)
        }
        guard left == 0 else { throw Self.stay(left) }
    }

    /// Moves what stepped aside in the root, under names that begin with `prefix`.
    func moveStrays(_ prefix: [UInt8]) throws(StoreError) {
        let root = try Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        for entry in try root.allEntries() where entry.starts(with: prefix) {
            try lostAndFound.keep(entry, from: root, as: entry)
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

    /// Moves those of the entries that authenticate; sidecars whose entry a killed repair has moved go.
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

    /// The attributes' key is lost with the record: they cannot be taken along.
    private func hasAttributes(_ directory: Descriptor) throws(StoreError) -> Bool {
        do throws(StoreError) {
            return try ExtendedAttributes(directory).names().contains { $0.starts(with: Array("user.vaultfs.".utf8)) }
        } catch .system(.notSupported) {
            return false
        }
    }
}
