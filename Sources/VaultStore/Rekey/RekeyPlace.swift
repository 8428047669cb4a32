internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
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
    /// Why it is not known whether there is a record; nil where that is.
    let unread: StoreError?
    /// Whether its own name authenticates, or it is the root.
    let isNamed: Bool
    private let status: stat
    /// The mode to be put back: the owner's permissions were missing.
    private let closedMode: mode_t?
    private let notes: RekeyNotes
    private let isChanged = Mutex(false)

    /// Opens a directory, also one that is closed to its owner.
    private init(
        _ entry: [UInt8], in parent: Descriptor, path: [[UInt8]], shown: [UInt8], isNamed: Bool,
        _ notes: RekeyNotes
    ) throws(StoreError) {
        // Pinned: the mode of what was looked at is changed, and nothing else.
        let pin = try Descriptor(at: parent.fd, entry, flags: linux_O_PATH | O_DIRECTORY)
        let before = try pin.status()
        let isClosed = before.denies(0o700)
        closedMode = isClosed ? before.st_mode & 0o7777 : nil
        if isClosed { try notes.note(path, before) }
        do throws(StoreError) {
            if isClosed { try pin.changePinnedMode(to: before.st_mode & 0o7777 | 0o700) }
            descriptor = try Descriptor(at: pin.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        } catch {
            if isClosed {
                try? pin.changePinnedMode(to: before.st_mode & 0o7777)
                notes.release()
            }
            throw error
        }
        status = before
        self.notes = notes
        self.path = path
        self.shown = shown
        self.isNamed = isNamed
        var record: DirectoryRecord?
        var keys: DirectoryKeys?
        var unread: StoreError?
        do throws(StoreError) {
            let bytes = try OpenDirectory.readRecord(of: descriptor).bytes
            record = try? DirectoryRecord.parse(bytes, epochs: notes.keyRing.epochs)
            keys = try record?.openKeys(notes.keyRing)
        } catch {
            if case .damaged = error {} else { unread = error }
        }
        (self.keys, self.unread) = (keys, unread)
        self.record = keys == nil ? nil : record
    }

    /// Opens a directory in this one.
    func inner(_ entry: [UInt8]) throws(StoreError) -> RekeyPlace {
        let name = name(of: entry)
        return try RekeyPlace(
            entry, in: descriptor, path: path + [entry], shown: shownPath(of: entry), isNamed: name != nil,
            notes)
    }

    /// The root of a vault.
    static func root(_ notes: RekeyNotes) throws(StoreError) -> RekeyPlace {
        try RekeyPlace([UInt8(ascii: ".")], in: notes.root, path: [], shown: [], isNamed: true, notes)
    }

    /// The directory that a path of entries leads to from a vault's root, no link followed.
    static func at(_ path: some Sequence<[UInt8]>, _ notes: RekeyNotes) throws(StoreError) -> RekeyPlace {
        var place = try self.root(notes)
        for entry in path { place = try place.inner(entry) }
        return place
    }

    deinit {
        // Best effort: only the times are wrong where it fails.
        let isChanged = isChanged.withLock(\.self)
        if isChanged { futimens(descriptor.fd, [status.st_atim, status.st_mtim]) }
        if let closedMode { fchmod(descriptor.fd, closedMode) }
        if isChanged { notes.release() }
        if closedMode != nil { notes.release() }
    }

    /// atime and mtime, in seconds and nanoseconds.
    var times: [UInt64] { status.rekeyTimes }

    /// Before entries are made, replaced or removed: the times are put back at the end, or by whoever comes after a kill.
    func willChange() throws(StoreError) {
        try isChanged.withLock { (isChanged) throws(StoreError) in
            guard !isChanged else { return }
            try notes.note(path, status)
            isChanged = true
        }
    }

    /// Removes what was left half done here.
    func sweep() throws(StoreError) {
        // Not in what is not the vault's: another vault may lie in it.
        guard record != nil else { return }
        let leftovers = try leftovers()
        if leftovers.isEmpty { return }
        try willChange()
        for entry in leftovers { OpenDirectory.remove(entry, from: descriptor) }
    }

    /// The `vaultfs.tmp.*` here, but for those of whoever changes slots meanwhile.
    func leftovers() throws(StoreError) -> [[UInt8]] {
        try descriptor.allEntries().filter {
            EntryName.kind(of: $0) == .temporary && !$0.starts(with: Array(ConfigurationReplacement.prefix.utf8))
        }
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
