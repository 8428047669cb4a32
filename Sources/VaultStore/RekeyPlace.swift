internal import BackingStore
internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// A directory of a vault that is being rekeyed. Kept by all who work in it; the last one gives it its times back. Any thread.
final class RekeyPlace: Sendable {
    let descriptor: Descriptor
    /// From the root, the entries that lead here.
    let path: [[UInt8]]
    /// The same with plaintext names, where they authenticate, for messages.
    let shown: [UInt8]
    /// Nil where the record does not authenticate.
    let record: DirectoryRecord?
    let keys: DirectoryKeys?
    /// Whether its own name authenticates, or it is the root.
    let isNamed: Bool
    private let status: stat
    /// The mode to be put back: the owner's permissions were missing.
    private let closedMode: mode_t?
    private let isChanged = Atomic<Bool>(false)

    /// Opens a directory, also one that is closed to its owner.
    private init(
        _ entry: [UInt8], in parent: Descriptor, path: [[UInt8]], shown: [UInt8], isNamed: Bool, keyRing: KeyRing
    ) throws(StoreError) {
        // Pinned: the mode of what was looked at is changed, and nothing else.
        let pin = try Descriptor(at: parent.fd, entry, flags: linux_O_PATH | O_DIRECTORY)
        let before = try pin.status()
        let isClosed = before.st_mode & 0o700 != 0o700 && geteuid() != 0 && before.st_uid == geteuid() && isNamed
        closedMode = isClosed ? before.st_mode & 0o7777 : nil
        if isClosed { try pin.changePinnedMode(to: before.st_mode & 0o7777 | 0o700) }
        do throws(StoreError) {
            descriptor = try Descriptor(at: pin.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        } catch {
            if isClosed { try? pin.changePinnedMode(to: before.st_mode & 0o7777) }
            throw error
        }
        status = before
        self.path = path
        self.shown = shown
        self.isNamed = isNamed
        let bytes = try? OpenDirectory.readRecord(of: descriptor).bytes
        let record = bytes.flatMap { try? DirectoryRecord.parse($0, epochs: keyRing.epochs) }
        keys = try? record?.openKeys(keyRing)
        self.record = keys == nil ? nil : record
    }

    /// Opens a directory in this one.
    func inner(_ entry: [UInt8], keyRing: KeyRing) throws(StoreError) -> RekeyPlace {
        let name = name(of: entry)
        return try RekeyPlace(
            entry, in: descriptor, path: path + [entry], shown: shownPath(of: entry), isNamed: name != nil,
            keyRing: keyRing)
    }

    /// The root of a vault.
    static func root(_ descriptor: Descriptor, keyRing: KeyRing) throws(StoreError) -> RekeyPlace {
        try RekeyPlace([UInt8(ascii: ".")], in: descriptor, path: [], shown: [], isNamed: true, keyRing: keyRing)
    }

    /// The directory that a path of entries leads to from a vault's root, no link followed.
    static func at(
        _ path: some Sequence<[UInt8]>, from root: Descriptor, keyRing: KeyRing
    ) throws(StoreError) -> RekeyPlace {
        var place = try self.root(root, keyRing: keyRing)
        for entry in path { place = try place.inner(entry, keyRing: keyRing) }
        return place
    }

    deinit {
        // Best effort: only the times are wrong where it fails.
        if isChanged.load(ordering: .acquiring) { futimens(descriptor.fd, [status.st_atim, status.st_mtim]) }
        if let closedMode { fchmod(descriptor.fd, closedMode) }
    }

    /// atime and mtime, in seconds and nanoseconds.
    var times: [UInt64] {
        [status.st_atim, status.st_mtim].flatMap {
            [UInt64(bitPattern: Int64($0.tv_sec)), UInt64(bitPattern: Int64($0.tv_nsec))]
        }
    }

    /// An entry was replaced: the times are to be put back.
    func noteChange() {
        isChanged.store(true, ordering: .releasing)
    }

    /// The plaintext name of an entry; nil where it does not authenticate here.
    func name(of entry: [UInt8]) -> [UInt8]? {
        guard let keys else { return nil }
        let blob = EntryName.kind(of: entry) == .longName ? descriptor.sidecarBlob(of: entry) : nil
        return EntryName.decode(entry, sidecarBlob: blob, keys: keys)
    }

    /// The path of an entry, for messages.
    func shownPath(of entry: [UInt8]) -> [UInt8] {
        (shown.isEmpty ? [] : shown + [UInt8(ascii: "/")]) + (name(of: entry) ?? entry)
    }
}
