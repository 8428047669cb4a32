internal import Control
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore

struct VaultMount: Codable, Sendable {
    /// The id of the opened slot.
    let slot: Int
    /// True if another mount may write the vault.
    let isShared: Bool
    let accessTimes: AccessTimes
    let cacheSize: Int
    /// The program that prefetches the vault's secret (`--prewarm`).
    let provider: KeyProvider?

    func open(
        _ request: MountRequest, masterKey: SecretBytes, logger: Logger, report: @escaping @Sendable (String) -> Void
    ) throws -> OpenedVault {
        let (path, options, slot) = (request.source, request.options, slot)
        let prefetch = try provider.map { try SecretPrefetch($0, for: path, logger: logger) }
        let sharing = VaultDirectory.Sharing(isShared: isShared, isReadOnly: options.isReadOnly)
        let locked = try LockedVault(
            VaultDirectory.open(path), sharing, isReadOnly: options.isReadOnly, slot: slot,
            masterKey: masterKey, log: { logger.notice("\($0)") })
        let (directory, keyRing, lease) = (locked.directory, locked.keyRing, locked.lease)
        let (store, lack): (Store, String?)
        let fileSystem: VaultFileSystem
        do {
            (store, lack) = try openStore(directory, keyRing, isReadOnly: options.isReadOnly)
            fileSystem = try VaultFileSystem(store: store, gate: LockGate(request.lock))
        } catch {
            // Release the writer lock, because nothing was written, and its record would look like an unclean end.
            directory.releaseWriterLock()
            throw error
        }
        directory.writerLock?.onLoss.set { store.addWriterLockFault() }
        if let device = try? directory.descriptor.status().st_dev, (try? MountTable.read())?.isSoft(device) == true {
            directory.writerLock?.limitChecks(seconds: 20)
        }
        // Report now, after the recovery of the log.
        store.reportProblems(to: report) { fileSystem.report($0) }
        return OpenedVault(
            vault: fileSystem, store: store, directory: directory, keyRing: keyRing, vaultLease: lease, slot: slot,
            lack: lack, prefetch: prefetch,
            warnings: [lack].compactMap(\.self) + StoreText.warnings(store.traits, directory.descriptor, path))
    }

    /// Opens the store of a vault. If it cannot be written, or the log's changes cannot be put in place, opens it
    /// read-only. Everything can then be read, including these changes. Also returns the reason.
    private func openStore(
        _ directory: VaultDirectory, _ keyRing: KeyRing, isReadOnly: Bool
    ) throws -> (Store, String?) {
        let open = { (isReadOnly: Bool) throws(StoreError) in
            try Store(
                root: directory.root, keyRing: keyRing, cacheSize: cacheSize, isReadOnly: isReadOnly,
                followsWriter: isShared, accessTimes: accessTimes, writerLock: directory.writerLock,
                traits: directory.traits)
        }
        if isReadOnly { return (try open(true), nil) }
        let lack: String
        do {
            try directory.claim()
            return (try open(false), nil)
        } catch StoreError.unavailable(_, let reason) {
            lack = reason
        } catch VaultError.unavailable(_, let reason) {
            lack = reason
        }
        try directory.shareInsteadOfWriting()
        return (try open(true), "mounted read-only: \(lack)")
    }
}

struct OpenedVault: OpenedSource {
    let vault: VaultFileSystem
    let store: Store
    /// Its last reference releases the writer lock, so the mount keeps one.
    let directory: VaultDirectory
    let keyRing: KeyRing
    let vaultLease: VaultLease
    /// The id of the mount's slot.
    let slot: Int
    /// The reason why the vault cannot be written.
    let lack: String?
    let prefetch: (any SecretPrefetching)?
    let warnings: [String]

    var fileSystem: any LockableFileSystem { vault }
    var lease: (any LeaseKeeper)? { vaultLease }
    var isReadOnly: Bool { store.isReadOnly }
    var problems: [String] {
        let isRekeying = keyRing.epochs.previous != nil
        return [lack].compactMap(\.self) + vault.problems
            + (isRekeying ? ["a rekey is unfinished: unmount, and run 'vaultfs rekey' again"] : [])
    }
    var unansweredSince: Int? { store.durability.activity.oldest }
    var problemsAtStart: [String] { store.problems }

    func secretSource(_ secret: ClientSecret) throws(ControlFailure) -> LockController.SecretSource {
        let given: SlotSecret
        do throws(FormatError) { given = try SlotSecret(secret) } catch {
            throw ControlRequest.notARequest(error.reason)
        }
        return { [weak directory, path = directory.path, vaultLease, slot] () throws(UnlockRefusal) in
            try Self.open(directory?.currentPath ?? path, with: given, for: vaultLease, knownSlot: slot)
        }
    }

    func complete(_ status: inout MountStatus) {
        status.vaultPath = directory.currentPath.string
        status.vaultID = keyRing.vault.hex
        status.store = store.traits
    }

    /// Opens a slot of the present configuration, so a slot removed after the mount no longer opens the vault.
    /// - Parameter knownSlot: the id of the mount's slot, whose cost the user accepted at the mount.
    private static func open(
        _ vaultPath: FilePath, with secret: SlotSecret, for lease: VaultLease, knownSlot: Int
    ) throws(UnlockRefusal) -> UnlockSecret {
        do throws(VaultError) {
            let directory = try VaultDirectory.open(vaultPath)
            let opened = try directory.openSlot(with: secret, at: lease.now, choice: SlotChoice(known: knownSlot))
            let slot = try lease.begin(opened.slot.id, of: directory, masterKey: opened.masterKey)
            return UnlockSecret(opened.masterKey) { lease.setSlot(slot) }
        } catch {
            switch error {
            case .wrongSecret, .noSlot: throw .wrongSecret(error.description)
            case .tooCostly(let path, let reason):
                throw .failed("\(path.shown): \(reason): unmount the vault, and mount it with that slot")
            case .slotEnded: throw .slotExpired(error.description)
            default: throw .failed(error.description)
            }
        }
    }
}

extension VaultDirectory.Sharing {
    /// Chooses the lock of a mount on its vault; nil for none.
    init?(isShared: Bool, isReadOnly: Bool) {
        if isShared { return nil }
        self = isReadOnly ? .shared : .exclusive
    }
}

extension VaultDirectory {
    /// The vault's present path, because it may have been moved. Does not ask the store, which may not answer.
    var currentPath: FilePath {
        // The kernel adds this to the path of a removed directory.
        guard let now = try? descriptor.kernelPath(), !now.string.hasSuffix(" (deleted)") else { return path }
        return now
    }
}
