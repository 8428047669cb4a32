package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
package import VaultFormat

/// One directory of the vault: its descriptor and the keys of its names. Any thread. The kernel lets only one request
/// at a time change a directory, so operations of several steps are not interleaved.
package final class OpenDirectory: Sendable {
    package static let recordEntry: Component = "vaultfs.dir"
    /// The error for a directory with the secret of a directory above (FileFormat: Directory-4).
    package static let repeated = StoreError.damaged(
        "vaultfs.dir: the record of a directory above: in the vault's directory, move this one elsewhere")

    /// O_PATH, so it needs no read permission, and stays valid when the directory is renamed or removed.
    package let descriptor: Descriptor
    package let keys: DirectoryKeys
    /// The epoch of the record at the opening.
    let epoch: UInt8
    /// Shared by all openings of the directory.
    let sharedClass: DirectoryClass
    package let store: Store
    /// Time of the opening, in milliseconds of CLOCK_MONOTONIC.
    package let openedAt = monotonicMilliseconds()

    private init(descriptor: Descriptor, keys: DirectoryKeys, epoch: UInt8, sharedClass: DirectoryClass, store: Store) {
        self.descriptor = descriptor
        self.keys = keys
        self.epoch = epoch
        self.sharedClass = sharedClass
        self.store = store
    }

    /// Authenticates the directory's record and derives its keys.
    /// - Parameters:
    ///   - descriptor: of a directory, O_PATH.
    ///   - sharedClass: the object shared with other openings of this directory. It is updated.
    /// - Throws: `.damaged` if `vaultfs.dir` is missing or does not authenticate.
    package static func open(
        _ descriptor: Descriptor, isRoot: Bool, in store: Store, class sharedClass: DirectoryClass = DirectoryClass()
    ) throws(StoreError) -> OpenDirectory {
        var epoch: UInt8 = 0
        let keys = try sharedClass.update { () throws(StoreError) -> (ProtectionClass, DirectoryKeys) in
            let record = try store.keyRing.parseRecord(try readRecord(of: descriptor))
            guard record.isRoot == isRoot else {
                throw .damaged("vaultfs.dir: the root's flag is \(record.isRoot ? "set" : "not set")")
            }
            epoch = record.epoch
            return (record.protectionClass, try record.unwrapKeys(store.keyRing))
        }
        sharedClass.setIdentity(keys.identity)
        return OpenDirectory(descriptor: descriptor, keys: keys, epoch: epoch, sharedClass: sharedClass, store: store)
    }

    /// Derives the keys again from the record on disk, after `keys.forget`. Does nothing if they are present.
    /// - Throws: `.locked` while the class key is forgotten; `.damaged`.
    package func restoreKeys() throws(StoreError) {
        // Lock, because other openings of the directory may share the keys.
        try sharedClass.update { () throws(StoreError) -> (ProtectionClass, Void) in
            guard keys.isForgotten else { return (protectionClass, ()) }
            let record = try store.keyRing.parseRecord(try Self.readRecord(of: descriptor))
            let cipher = try store.keyRing.classCipher(record.protectionClass, epoch: record.epoch)
            try StoreError.ofFormat(record.restore(keys, classCipher: cipher, vault: store.keyRing.vault))
            return (record.protectionClass, ())
        }
    }

    /// Authenticates the directory's record, and returns it with its keys.
    /// - Throws: `.damaged`; `.locked` if the key of its class is forgotten.
    package static func openRecord(
        of directory: Descriptor, _ keyRing: KeyRing
    ) throws(StoreError) -> (record: DirectoryRecord, keys: DirectoryKeys) {
        let record = try keyRing.parseRecord(try readRecord(of: directory))
        return (record, try record.unwrapKeys(keyRing))
    }

    /// Returns the record's 64 bytes.
    /// - Throws: `.damaged` if the record is missing, or not a regular file of 64 bytes; `.system` with errno.
    package static func readRecord(of directory: Descriptor) throws(StoreError) -> [UInt8] {
        do throws(StoreError) {
            return try directory.readFile(recordEntry, limit: DirectoryRecord.size, isExact: true)
        } catch .system(.noSuchFileOrDirectory) {
            throw .damaged("vaultfs.dir: missing")
        } catch .damaged(let reason) {
            throw .damaged("vaultfs.dir: \(reason)")
        }
    }

    /// Opens the same directory for a listing, with its own position.
    /// - Throws: `.system` with errno.
    package func reopenedForListing() throws(StoreError) -> OpenDirectory {
        let readable = try descriptor.openedForReading()
        store.accessTimes.prepare(directory: readable)
        return OpenDirectory(descriptor: readable, keys: keys, epoch: epoch, sharedClass: sharedClass, store: store)
    }

    /// Returns the backing entry of a plaintext name.
    /// - Throws: `ENAMETOOLONG`, `EINVAL`.
    package func encode(_ name: [UInt8]) throws(StoreError) -> EntryName.Encoded {
        guard name.count <= EntryName.maximumLength else { throw .system(.fileNameTooLong) }
        do { return try store.lastName.encode(name, keys) } catch { throw .system(.invalidArgument) }
    }

    /// Returns the plaintext name of a conflict copy. Nil for other entries, and if another entry has this name.
    package func conflictName(of entry: Component) -> [UInt8]? {
        guard let name = descriptor.conflictName(of: entry, keys), let own = try? encode(name).entry,
            (try? descriptor.statusIfPresent(of: own) == nil) == true
        else { return nil }
        return name
    }

    /// Returns the backing entry of a plaintext name: its own or, if that is absent, a conflict copy's.
    /// - Throws: `ENAMETOOLONG`, `EINVAL`, and errors of reading the directory.
    package func find(_ name: [UInt8]) throws(StoreError) -> EntryName.Encoded {
        let encoded = try encode(name)
        guard ConflictCopy.canHave(name), try descriptor.statusIfPresent(of: encoded.entry) == nil,
            let copy = try descriptor.allEntries().filter({ descriptor.conflictName(of: $0, keys) == name })
                .min(by: { $0.lexicographicallyPrecedes($1) })
        else { return encoded }
        return EntryName.Encoded(entry: copy)
    }

    /// fstatat(2) of a backing entry, not following a link.
    /// - Throws: `.system` with errno.
    package func status(of entry: Component) throws(StoreError) -> stat { try store.status(of: entry, in: descriptor) }
}

extension OpenDirectory {
    /// The class whose key wraps the directory secret. New entries get this class.
    package var protectionClass: ProtectionClass { sharedClass.value }

    /// Wraps the directory secret under another class's key. A new record replaces the old one, durably. Names, the
    /// root's flag, the record's owner and mode, and the directory's times stay. Writes nothing if the directory
    /// already has the class.
    /// - Throws: `EROFS`; `.damaged` if the record does not authenticate. Also throws if the new record is in place but
    ///   cannot be made durable, or the times cannot be restored. Then the directory has the new class.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        // Read the record again, because the secret is not kept in memory.
        let record = try store.keyRing.parseRecord(try Self.readRecord(of: descriptor))
        let status = try descriptor.status(of: Self.recordEntry)
        if record.protectionClass == newClass { return }
        let oldCipher = try store.keyRing.classCipher(record.protectionClass, epoch: record.epoch)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: record.epoch)
        let rewrapped = try StoreError.ofFormat(record.rewrapped(as: newClass, from: oldCipher, to: newCipher))
        // Open it before any change, because a directory that denies reading to its owner cannot be synced.
        let directory = try descriptor.openedForReading()
        let before = try directory.status()
        try sharedClass.update { () throws(StoreError) -> (ProtectionClass, Void) in
            try descriptor.install(
                rewrapped, as: Self.recordEntry, by: temporaryEntry(), owner: Owner(status),
                mode: status.st_mode & 0o7777, isReplacing: true)
            return (newClass, ())
        }
        try retrying { futimens(directory.fd, [before.st_atim, before.st_mtim]) }
        try directory.synchronize(dataOnly: false)
    }
}

/// The protection class of one directory, and its conflict copies. All openings of the directory share one object, so
/// that new objects in it get the new class after a change. Any thread.
package final class DirectoryClass: Sendable {
    private let current = Atomic<ProtectionClass>(.complete)
    /// Held while the record is read or replaced, so that a reader of the old record does not undo a change. Under it,
    /// threads take only the key ring's lock.
    private let record = Mutex<Void>(())

    /// The entries with conflict copies at the last reading of the directory.
    struct Twins {
        /// Milliseconds.
        static let maximumAge = 1000

        var entries: Set<Component> = []
        /// Milliseconds of CLOCK_MONOTONIC.
        var readAt = Int.min / 2
    }

    let twins = Mutex(Twins())
    /// The identity at the last opening. Nil before the first.
    private let identity = Mutex<Identity?>(nil)

    /// `DirectoryKeys.identity` of a directory. Counted while the directory is known.
    private final class Identity: Sendable {
        /// Number of known directories of this process by identity.
        private static let counts = Mutex<[[UInt8]: Int]>([:])
        let bytes: [UInt8]

        init(_ bytes: [UInt8]) {
            self.bytes = bytes
            Self.counts.withLock { $0[bytes, default: 0] += 1 }
        }

        deinit {
            Self.counts.withLock { counts in
                guard let index = counts.index(forKey: bytes) else { return }
                counts.values[index] -= 1
                if counts.values[index] == 0 { counts.remove(at: index) }
            }
        }

        var isRepeated: Bool { Self.counts.withLock { $0[bytes] ?? 0 } > 1 }
    }

    package init() {}

    fileprivate func setIdentity(_ bytes: [UInt8]) {
        identity.withLock { identity in if identity?.bytes != bytes { identity = Identity(bytes) } }
    }

    /// Returns true if both directories were opened, and have the same secret.
    package func hasSecret(of other: DirectoryClass) -> Bool {
        guard let bytes = identity.withLock({ $0?.bytes }) else { return false }
        return other.identity.withLock { $0?.bytes } == bytes
    }

    /// False if no other known directory has the same secret, which saves comparing the directories above one by one.
    package var mayRepeatSecret: Bool { identity.withLock { $0 }?.isRepeated ?? true }

    /// The class in the record at its last reading. Before that, `complete`, the strictest.
    package var value: ProtectionClass { current.load(ordering: .acquiring) }

    /// Runs `body`, which reads or replaces the record and returns the class in it.
    func update<Result>(_ body: () throws(StoreError) -> (ProtectionClass, Result)) throws(StoreError) -> Result {
        try record.withLock { (_) throws(StoreError) -> Result in
            let (protectionClass, result) = try body()
            current.store(protectionClass, ordering: .releasing)
            return result
        }
    }
}

/// The class claimed by an object, not authenticated. Needs no key. Nil without a claim.
extension ProtectionClass {
    /// Offset of the class in a file's header and in a directory's record (FileFormat, File header, Directory record).
    private static let offset = 5

    package static func claimed(
        inFileAt directory: Descriptor, _ entry: Component, _ accessTimes: AccessTimes = AccessTimes()
    ) -> ProtectionClass? {
        guard let file = try? Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK) else { return nil }
        accessTimes.prepare(file: file)
        guard let bytes = try? file.read(at: 0, count: offset + 1), bytes.count > offset else { return nil }
        return ProtectionClass(rawValue: bytes[offset])
    }

    package static func claimed(byDirectory directory: Descriptor) -> ProtectionClass? {
        claimed(inFileAt: directory, OpenDirectory.recordEntry)
    }

    package static func claimed(byLinkAt directory: Descriptor, _ entry: Component) -> ProtectionClass? {
        (try? directory.linkTarget(of: entry)).flatMap { LinkTarget.protectionClass(ofStored: $0) }
    }
}
