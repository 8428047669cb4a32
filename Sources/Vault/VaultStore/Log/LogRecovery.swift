internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// Puts the entries in place that a killed daemon or a power cut has left in a log, before anything else uses the store
/// (FileFormat, Log). It can be interrupted at any point, because the log stays until everything is in place.
package struct LogRecovery {
    static let afterCleanEnd =
        "vaultfs.log has entries after a clean end: another program has put it there, and it is not applied"
    static let missing =
        "vaultfs.log is missing after an unclean end: what was written shortly before it may be lost; compare with a backup"

    static func damaged(_ entries: UInt64) -> String {
        "vaultfs.log is damaged: \(entries) of its entries cannot be read, and what they changed is lost; run 'vaultfs verify'"
    }

    static let damagedHeader =
        "vaultfs.log is damaged at its beginning: a copy of that was used, and no entry is known to be lost"
    package static let outdated =
        "vaultfs.log is older than the files that it has changes for: another program has put an old one there, and its changes are not applied"
    static let older =
        "the store has returned vaultfs.log in an older state than before: another program has put it there, or a cache of the store is old"
    static let ambiguous =
        "vaultfs.log has changes of an id that several files have: each of them got the changes; compare "
        + "with a backup"

    static func tooLarge(_ paths: [[UInt8]]) -> String {
        let shown = paths.prefix(3).map { FilePath(String(decoding: $0, as: UTF8.self)).shown }
        let rest = paths.count - shown.count
        return
            "the store cannot have files as large as the changes in vaultfs.log need, so these files are as they were before: "
            + shown.joined(separator: ", ") + (rest > 0 ? " and \(rest) more" : "")
    }

    /// Maximum number of files kept open until they are synced together.
    private static let mostWriters = 256

    private let store: Store
    private let log: Descriptor
    private let files: [UInt64: LoggedChanges]
    private var writers: [Descriptor] = []
    /// The reason why the changes of some file could not be put in place, and the bytes of their records.
    private var lack: (error: StoreError, bytes: UInt64)?
    private var damage: StoreError?
    /// Paths of the files too large for the store with their changes.
    private var tooLarge: [[UInt8]] = []
    private var hasOutdatedEntries = false
    private var isAmbiguous = false

    private init(_ store: Store, _ contents: LogContents) {
        (self.store, log, files) = (store, contents.log, contents.files)
    }

    /// Puts the changes in place and empties the log. Drops the changes of removed files. Adds damage to the store's
    /// faults, and gives a damaged log another name.
    /// - Parameter setsAside: true in a repair, to rename an object that is no log, or a log with changes of a damaged
    ///   file.
    /// - Throws: `.damaged` for such an object or file; `.unavailable` if the store lacks a resource, without any loss.
    static func run(in store: Store, setsAside: Bool) throws(StoreError) {
        do throws(StoreError) { try recover(in: store, setsAside: setsAside) } catch {
            throw error.unavailable(failure)
        }
    }

    private static func recover(in store: Store, setsAside: Bool) throws(StoreError) {
        let found: LogContents?
        do throws(StoreError) { found = try LogContents.read(store.root, store.keyRing) } catch {
            // A repair sets the damaged log aside, because the vault cannot be written with it.
            guard case .damaged = error, setsAside else { throw error }
            return try DamagedRoot.setLogAside(in: store.root)
        }
        guard let contents = found else {
            if store.followsUncleanEnd { store.faults.add(.foundLog, missing) }
            return
        }
        if store.followsCleanEnd && !contents.isEmpty {
            store.faults.add(.foundLog, afterCleanEnd)
            return try DamagedRoot.setLogAside(in: store.root)
        }
        var recovery = LogRecovery(store, contents)
        if !contents.files.isEmpty {
            do throws(StoreError) {
                try recovery.putInPlace()
            } catch .damaged(let reason) {
                guard setsAside else { throw unreachable(reason) }
                return try DamagedRoot.setLogAside(in: store.root)
            }
        }
        if let fault = recovery.fault(contents) {
            store.faults.add(.foundLog, fault)
            return try DamagedRoot.setLogAside(in: store.root)
        }
        guard try contents.log.status().st_size > off_t(LogHeader.areaSize) else { return }
        let writer = try contents.log.reopened(flags: O_RDWR)
        try writer.truncate(to: LogHeader.areaSize)
        try writer.synchronize(dataOnly: false)
    }

    /// The reason why the log is kept.
    private func fault(_ contents: LogContents) -> String? {
        if let damage = Self.damage(contents) { return damage }
        if hasOutdatedEntries { return Self.outdated }
        if !tooLarge.isEmpty { return Self.tooLarge(tooLarge) }
        return isAmbiguous ? Self.ambiguous : nil
    }

    /// The damage of a log itself.
    static func damage(_ contents: LogContents) -> String? {
        contents.damagedEntries > 0 ? damaged(contents.damagedEntries) : contents.isHeaderDamaged ? damagedHeader : nil
    }

    /// Moves logs that were damaged to lost+found. Best effort: there may be no space, or no record of the root.
    static func keepDamagedLogs(in store: Store) {
        guard (try? store.root.statusIfPresent(of: DamagedRoot.logPrefix)) != nil,
            let lostAndFound = try? LostAndFound(in: store)
        else { return }
        try? lostAndFound.keepAside(DamagedRoot.logPrefix)
    }

    /// Puts the changes of each file in place, durably.
    /// - Throws: the reason why the changes of some file cannot be put in place.
    private mutating func putInPlace() throws(StoreError) {
        let found = try LoggedFiles(files, in: store)
        for (fileID, changes) in files.sorted(by: { $0.key < $1.key }) {
            for file in found.files(fileID) {
                do throws(StoreError) { try putInPlace(changes, file) } catch .damaged(let reason) {
                    damage = damage ?? .damaged(reason)
                } catch {
                    lack = (lack?.error ?? error, (lack?.bytes ?? 0) + changes.recordBytes)
                }
            }
            isAmbiguous = isAmbiguous || found.isAmbiguous(fileID)
        }
        try synchronize()
        // The lack comes first, because damage lets a repair set the log aside, while more may still be put in place.
        if let lack { throw lack.error.unavailable(Self.failure, needed: lack.bytes) }
        if let damage { throw damage }
    }

    private mutating func putInPlace(_ changes: LoggedChanges, _ found: LoggedFiles.Candidate) throws(StoreError) {
        let file = try EncryptedFile(try found.open(in: store), in: store)
        let sealCounter = file.writing.withLock { $0.header.sealCounter }
        if changes.outdated(sealCounter) > 0 { hasOutdatedEntries = true }
        if changes.sealCounter < sealCounter { return }
        do throws(StoreError) {
            let writer = try file.reader.reopenedForWriting()
            try Placement(parts: file.parts, changes: changes, log: log, writer: writer).recover(file)
            writers.append(writer)
        } catch .system(.fileTooLarge) where !Self.limitsFileSizes {
            return tooLarge.append(found.path)
        }
        if writers.count == Self.mostWriters { try synchronize() }
    }

    /// True if a limit of this process forbids larger files, so that another process may write them (setrlimit(2)).
    private static var limitsFileSizes: Bool {
        var limit = rlimit()
        return getrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit) != 0 || limit.rlim_cur != .max
    }

    private mutating func synchronize() throws(StoreError) {
        defer { writers = [] }
        let errors = RedoLog.synchronizeFiles(writers, root: store.root, usesSyncfs: !store.isOnFuse)
        if let first = errors.first { throw first.error }
    }

    private static func unreachable(_ reason: String) -> StoreError {
        .damaged(
            "vaultfs.log has changes of a file that is damaged (\(reason)): 'vaultfs verify --repair' keeps them in lost+found and "
                + "corrects the rest; until then the vault can be mounted with -o ro")
    }

    private static let failure = "changes in vaultfs.log cannot be put in place"
}

extension StoreError {
    /// Returns the error for a lack of the store or of this machine, with advice. Any other error stays as it is.
    /// - Parameters:
    ///   - failure: says what failed.
    ///   - needed: bytes for which the store has no room.
    func unavailable(_ failure: String, needed: UInt64 = 0) -> StoreError {
        guard case .system(let errno) = self else { return self }
        return .unavailable(errno, "\(failure) (\(errno)): \(Self.advice(errno, needed)), then try again")
    }

    private static func advice(_ errno: Errno, _ needed: UInt64) -> String {
        switch errno {
        case _ where errno.isNoSpace: "free \(max(1, (needed + 1 << 20 - 1) >> 20)) MiB there"
        case .tooManyOpenFiles, .tooManyOpenFilesInSystem: "raise the limit of open files"
        case .noMemory: "free memory"
        case .readOnlyFileSystem: "make the store writable"
        case .permissionDenied, .notPermitted: "become the vault's owner"
        case .fileTooLarge: "raise the limit of file sizes (ulimit -f)"
        default: "see why the store does not answer"
        }
    }
}
