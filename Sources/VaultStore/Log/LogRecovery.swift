internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// Puts the entries of a log in place that a killed daemon or a power cut has left, before anything else uses the store
/// (FileFormat, Log). It can be interrupted at any point: the log stays until everything is in place.
struct LogRecovery {
    private let store: Store
    private let log: Descriptor
    private var files: [UInt64: LoggedChanges]
    private var writers: [Descriptor] = []
    /// Maximum number of files that are kept open until they are synced together.
    private static let mostWriters = 256
    /// The reason why the changes of some file could not be put in place.
    private var failure: StoreError?

    private init(_ store: Store, _ log: Descriptor, _ files: [UInt64: LoggedChanges]) {
        (self.store, self.log, self.files) = (store, log, files)
    }

    /// Reads the changes that are in the log. Nil if there is no log.
    /// - Throws: `.damaged` if the file is no log.
    static func changes(
        _ root: Descriptor, _ keyRing: KeyRing
    ) throws(StoreError) -> (log: Descriptor, files: [UInt64: LoggedChanges])? {
        guard let (log, header) = try RedoLog.openToRead(root) else { return nil }
        // A rekey that was interrupted may have begun with entries of the previous epoch.
        for keys in keyRing.logKeys {
            var reader = try LogReader(log, header, keys: keys, keyRing.layout)
            let files = try reader.changes()
            if !files.isEmpty { return (log, files) }
        }
        return (log, [:])
    }

    /// Puts the changes in place and empties the log. The changes of files that no longer exist are dropped.
    /// - Parameter setsAside: renames a log with changes that cannot be put in place, for a repair.
    /// - Throws: `.damaged` if a file cannot be reached. Nothing is lost then.
    static func run(in store: Store, setsAside: Bool) throws(StoreError) {
        guard let (log, files) = try changes(store.root, store.keyRing) else { return }
        if !files.isEmpty {
            var recovery = LogRecovery(store, log, files)
            recovery.walk()
            try recovery.synchronize()
            if let failure = recovery.failure {
                guard setsAside else { throw unreachable(failure) }
                return try DamagedRoot.setLogAside(in: store.root)
            }
        }
        guard try log.status().st_size > off_t(LogHeader.areaSize) else { return }
        let writer = try log.reopened(flags: O_RDWR)
        try writer.truncate(to: LogHeader.areaSize)
        try writer.synchronize(dataOnly: false)
    }

    /// Finds the files by their ids. One that is found and cannot be changed is a failure, and so is one that may be where the
    /// walk could not look.
    private mutating func walk() {
        var unseen: StoreError?
        do throws(StoreError) { try walk(&unseen) } catch { unseen = error }
        if !files.isEmpty { failure = failure ?? unseen }
    }

    private mutating func walk(_ unseen: inout StoreError?) throws(StoreError) {
        var walk = BackingWalk(try store.root.inner([UInt8(ascii: ".")]))
        while !files.isEmpty, let found = walk.nextEntry(onFailure: { unseen = unseen ?? $2 }) {
            guard found.status.st_mode & S_IFMT == S_IFREG, found.status.st_size >= off_t(FileHeader.size) else {
                continue
            }
            let reader: Descriptor
            let fileID: UInt64
            do throws(StoreError) {
                reader = try open(found)
                fileID = try EncryptedFile.unprovenFileID(of: reader)
            } catch {
                unseen = unseen ?? error
                continue
            }
            guard let changes = files.removeValue(forKey: fileID) else { continue }
            do throws(StoreError) {
                writers.append(try EncryptedFile(reader, in: store).recover(changes, from: log))
                if writers.count == Self.mostWriters { try synchronize() }
            } catch { failure = failure ?? error }
        }
    }

    private mutating func synchronize() throws(StoreError) {
        try RedoLog.synchronize(writers, root: store.root, usesSyncfs: !store.isOnFuse)
        writers = []
    }

    private func open(_ found: BackingWalk<Descriptor>.Found) throws(StoreError) -> Descriptor {
        do throws(StoreError) {
            return try Descriptor(at: found.directory.fd, found.entry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.permissionDenied) {
            // A program may have written a file that it has closed to its own user since.
            return try Descriptor(at: found.directory.fd, found.entry, flags: linux_O_PATH).reopenedForWriting()
        }
    }

    private static func unreachable(_ error: StoreError) -> StoreError {
        .damaged(
            "vaultfs.log has changes of a file that cannot be reached (\(error.reason)); mount the vault as its owner, or see "
                + "'vaultfs verify --repair'")
    }
}
