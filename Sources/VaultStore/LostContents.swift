internal import BackingStore
internal import CLinux
internal import Glibc
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

    /// Empties the directory `entry` of `parent`, keeps its record, and removes it.
    /// - Throws: `.damaged` where something stays in it: then the record stays too.
    func empty(_ entry: [UInt8], in parent: Descriptor) throws(StoreError) {
        let directory = try Descriptor(at: parent.fd, entry, flags: O_RDONLY | O_DIRECTORY)
        try move(try directory.allEntries(), from: directory)
        let left = try directory.allEntries().count { $0 != OpenDirectory.recordEntry }
        guard left == 0 else { throw Self.stay(left) }
        guard try !hasAttributes(directory) else { throw .damaged("its attributes do not authenticate, and stay") }
        let digits = Array(try LostObject.digits(of: entry).utf8)
        try lostAndFound.synchronize()
        try lostAndFound.keep(
            OpenDirectory.recordEntry, from: directory, as: Array("directory-record-".utf8) + digits)
        try withCString(entry) { (name) throws(StoreError) in
            _ = try retrying { unlinkat(parent.fd, name, AT_REMOVEDIR) }
        }
        guard EntryName.kind(of: entry) == .longName else { return }
        let name = Array("directory-".utf8) + digits + Array(".name".utf8)
        try lostAndFound.keep(EntryName.sidecar(of: entry), from: parent, as: name)
    }

    /// Moves what has no name under the root's new record.
    /// - Throws: `.damaged` where something stays hidden.
    func moveFromRoot() throws(StoreError) {
        let pinned = try Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: linux_O_PATH | O_DIRECTORY)
        let root = try OpenDirectory.open(pinned, isRoot: true, in: store)
        let listing = try root.reopenedForListing().descriptor
        try move(try listing.allEntries().filter { !Self.hasName($0, in: root) }, from: listing)
        for entry in try listing.allEntries() where entry.starts(with: LostRecord.prefix) {
            try lostAndFound.keep(entry, from: listing, as: entry)
        }
        let left = try listing.allEntries().count { entry in
            [.name, .longName].contains(EntryName.kind(of: entry)) && !Self.hasName(entry, in: root)
        }
        guard left == 0 else { throw Self.stay(left) }
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
                let owner = Array(entry.dropLast(".name".utf8.count))
                if (try? directory.status(of: owner)) == nil { OpenDirectory.remove(entry, from: directory) }
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
