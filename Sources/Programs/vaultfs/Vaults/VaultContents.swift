internal import Control
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore

extension MountContents {
    /// Opens a vault.
    /// - Parameters:
    ///   - slot: the id of the slot that was opened.
    ///   - report: called with a line for each problem of the store.
    init(
        vault request: MountRequest, slot: Int, masterKey: SecretBytes, log: @escaping @Sendable (String) -> Void,
        report: @escaping @Sendable (String) -> Void
    ) throws {
        let (path, options) = (request.source, request.options)
        let locked = try LockedVault(
            VaultDirectory.open(path), options.sharing, isReadOnly: options.isReadOnly, slot: slot,
            masterKey: masterKey, log: log)
        let (directory, keyRing, lease) = (locked.directory, locked.keyRing, locked.lease)
        if !options.isReadOnly { try directory.claim() }
        let (store, lack): (Store, String?)
        let fileSystem: VaultFileSystem
        do {
            (store, lack) = try Self.openStore(directory, keyRing, request)
            fileSystem = try VaultFileSystem(store: store, gate: LockGate(request.lock))
        } catch {
            // Nothing was written. A writer's record would look like an unclean end.
            directory.releaseWriterLock()
            throw error
        }
        directory.writerLock?.onLoss.set { store.addWriterLockFault() }
        var status = stat()
        if fstat(directory.root.rawValue, &status) == 0, (try? MountTable.read())?.isSoft(status.st_dev) == true {
            directory.writerLock?.limitChecks(seconds: 20)
        }
        // The log has been recovered by now.
        store.reportProblems(to: report) { fileSystem.report($0) }
        self.init(
            fileSystem: fileSystem, vaultID: keyRing.vault.hex, view: nil,
            problems: {
                let isRekeying = keyRing.epochs.previous != nil
                return [lack].compactMap(\.self) + store.problems
                    + (isRekeying ? ["a rekey is unfinished: unmount, and run 'vaultfs rekey' again"] : [])
            },
            secretSource: { [weak directory] (given) throws(ControlFailure) in
                let secret: SlotSecret
                do throws(FormatError) { secret = try SlotSecret(given) } catch {
                    throw ControlRequest.notARequest(error.reason)
                }
                return { [weak directory] () throws(UnlockRefusal) in
                    try Self.open(directory?.currentPath ?? path, with: secret, for: lease, knownSlot: slot)
                }
            },
            warnings: [lack].compactMap(\.self) + StoreText.warnings(store.traits, directory.descriptor, path),
            lease: lease, vault: directory, isReadOnly: store.isReadOnly)
        problemsAtStart = store.problems
        traits = store.traits
    }

    /// Opens the store of a vault. If it lacks what it takes to put the log's changes in place, it is opened read-only: everything
    /// can be read, with these changes. Also returns the reason.
    private static func openStore(
        _ directory: VaultDirectory, _ keyRing: KeyRing, _ request: MountRequest
    ) throws -> (Store, String?) {
        let options = request.options
        let open = { (isReadOnly: Bool) throws(StoreError) in
            try Store(
                root: directory.root, keyRing: keyRing, cacheSize: request.cacheSize, isReadOnly: isReadOnly,
                followsWriter: options.isShared, accessTimes: options.accessTimes, writerLock: directory.writerLock,
                traits: directory.traits)
        }
        let lack: String
        do throws(StoreError) { return (try open(options.isReadOnly), nil) } catch {
            guard case .unavailable(_, let reason) = error, !options.isReadOnly else { throw error }
            lack = "mounted read-only: \(reason)"
        }
        try directory.shareInsteadOfWriting()
        return (try open(true), lack)
    }

    /// Opens a slot of the present configuration. A slot that was removed after the mount no longer opens the vault.
    /// - Parameter knownSlot: the id of the mount's slot. Its cost was accepted at the mount.
    private static func open(
        _ vaultPath: FilePath, with secret: SlotSecret, for lease: VaultLease, knownSlot: Int
    ) throws(UnlockRefusal) -> UnlockSecret {
        do throws(VaultError) {
            let directory = try VaultDirectory.open(vaultPath)
            let opened = try directory.openSlot(with: secret, at: lease.now, choice: SlotChoice(known: knownSlot))
            let term = try lease.begin(opened.slot.id, of: directory, masterKey: opened.masterKey)
            return UnlockSecret(opened.masterKey) { lease.adopt(term) }
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
