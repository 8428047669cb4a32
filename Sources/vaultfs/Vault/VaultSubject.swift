internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore

/// A vault to be mounted. Its secret is the master key.
struct VaultSubject: MountSubject {
    /// How long a mount waits for a daemon that is shutting down.
    private static let lockPatience: Duration = .seconds(10)

    /// The id of the slot that was opened.
    let slot: Int
    /// Asked again when nothing but a secret is missing (`--prewarm`).
    let provider: KeyProvider?

    var words: [[UInt8]] {
        let ahead = provider.map { [Array("--prewarm".utf8), Array("--provider=".utf8) + $0.command] } ?? []
        return [Array("mount".utf8), Array("--opened-slot=\(slot)".utf8)] + ahead
    }

    func open(
        _ request: MountRequest, secret masterKey: SecretBytes, log: @escaping @Sendable (String) -> Void
    ) throws -> MountContents {
        let locked = try VaultDirectory.open(request.source)
        if let sharing = request.sharing { try locked.lock(sharing, wait: Self.lockPatience) }
        // Only now nobody else writes it, if anybody may.
        let directory = try locked.reread()
        try directory.authenticate(masterKey: masterKey)
        if request.isReadOnly { try directory.checkNoRekeyStep() }
        let keyRing = try KeyRing(masterKey: masterKey, configuration: directory.configuration)
        // Before anything is mounted: a play window may start now.
        let lease = try VaultLease(slot: slot, of: directory, keyRing: keyRing, log: log)
        // Callers hold on to it for as long as this process serves; and every key follows from it.
        masterKey.forget()
        if !request.isReadOnly { try directory.claim() }
        let store: Store
        let fileSystem: VaultFileSystem
        do {
            store = try Store(
                root: directory.root, keyRing: keyRing, cacheSize: request.cacheSize, isReadOnly: request.isReadOnly,
                followsWriter: request.isShared, accessTimes: request.accessTimes, writerLock: directory.writerLock)
            fileSystem = try VaultFileSystem(store: store, gate: LockGate(request.lock))
        } catch {
            // The note of a writer that has written nothing would pass for an unclean end.
            directory.releaseWriterLock()
            throw error
        }
        directory.writerLock?.onLoss.withLock {
            $0 = { log("vaultfs.lock is another's, or gone: nothing is written to the vault any more; unmount it") }
        }
        let path = request.source
        // Now the journal's records are in place that can be.
        store.reportProblems(to: log)
        return MountContents(
            fileSystem: fileSystem, vaultID: keyRing.vault.hex, view: nil,
            problems: { store.problems + Self.problems(of: keyRing) },
            unlockSecret: { (secret) throws(UnlockRefusal) in
                try Self.open(path, with: secret, for: lease, knownSlot: slot)
            },
            secretAhead: provider?.asking(for: path),
            lease: lease, hold: directory)
    }

    private static func problems(of keyRing: KeyRing) -> [String] {
        keyRing.epochs.previous == nil ? [] : ["a rekey is unfinished: unmount, and run 'vaultfs rekey' again"]
    }

    /// Opens a slot, of the configuration as it is now: a slot removed since the mount opens no more.
    /// - Parameter knownSlot: the id of the slot that the vault was mounted with. Its cost was accepted at the mount.
    private static func open(
        _ vaultPath: FilePath, with secret: SlotSecret, for lease: VaultLease, knownSlot: Int
    ) throws(UnlockRefusal) -> UnlockSecret {
        do throws(VaultError) {
            let directory = try VaultDirectory.open(vaultPath)
            let opened = try directory.openSlot(
                with: secret, at: lease.now, choice: SlotChoice(known: knownSlot))
            let term = try lease.begin(opened.slot.id, of: directory, masterKey: opened.masterKey)
            return UnlockSecret(opened.masterKey) { lease.adopt(term) }
        } catch {
            switch error {
            case .wrongSecret, .noSlot: throw .wrongSecret(error.description)
            case .tooCostly(let path, let reason):
                throw .failed("\(path.shown): \(reason): unmount the vault, and mount it with that slot")
            case .slotExpired, .clockSetBack: throw .slotExpired(error.description)
            default: throw .failed(error.description)
            }
        }
    }
}
