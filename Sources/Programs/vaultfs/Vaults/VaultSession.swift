internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Transfer
internal import VaultFileSystem
internal import VaultFormat
internal import VaultStore

/// A vault used without a mount, and locked like a mounted one until the last reference goes. One thread.
final class VaultSession {
    /// Memory for decrypted blocks. A little is enough, because files are read once, in order.
    private static let cacheSize = 1 << 20
    /// The pause after a seal, as a multiple of the time it took.
    private static let sealingPause = 9

    private let vault: LockedVault
    private let isReadOnly: Bool
    private var system: VaultFileSystem?
    private var nextSealing = ContinuousClock.now

    /// Reads the secret, and locks the vault.
    /// - Parameter advice: returns the advice for a mounted vault, from its mountpoint.
    init(_ vault: VaultDirectory, isReadOnly: Bool, secret: VaultSecretOptions, advice: (String) -> String) throws {
        let sharing: VaultDirectory.Sharing = isReadOnly ? .shared : .exclusive
        if !isReadOnly && vault.isOnReadOnlyStore {
            throw CommandFailure(.failure, "\(vault.path.shown) cannot be written: its file system is read-only")
        }
        try VaultUse.check(vault, sharing: sharing, advice: advice)
        let opened = try secret.open(vault)
        self.vault = try LockedVault(
            vault, sharing, isReadOnly: isReadOnly, slot: opened.slot.id, masterKey: opened.masterKey)
        self.isReadOnly = isReadOnly
    }

    var directory: VaultDirectory { vault.directory }

    /// Called by any thread. Returns true if the slot's time is over, unless the slot was renewed.
    var hasEnded: @Sendable () -> Bool { { [lease = vault.lease] in lease.isOver && lease.hasEnded() } }

    func open(readsCutFiles: Bool = false) throws -> FileSystemTree<VaultFileSystem> {
        do {
            if !isReadOnly { try directory.claim() }
            let store = try Store(
                root: directory.root, keyRing: vault.keyRing, cacheSize: Self.cacheSize, isReadOnly: isReadOnly,
                readsCutFiles: readsCutFiles, writerLock: directory.writerLock, traits: directory.traits)
            let opened = try VaultFileSystem(store: store, gate: LockGate())
            system = opened
            store.reportProblems(to: Console.report)
            return FileSystemTree(opened)
        } catch {
            // Release the writer lock, because nothing was written, and its record would look like an unclean end.
            if system == nil && !isReadOnly { directory.releaseWriterLock() }
            throw error
        }
    }

    /// The faults of the store, one line each. All of them have been reported.
    var problems: [String] { system?.store.problems ?? [] }

    /// Seals the written files, so that a later run can skip them. Call it while files are written. It takes at most a
    /// tenth of the time, because it waits for the disk.
    func sealSometimes() {
        guard let system, !isReadOnly, ContinuousClock.now >= nextSealing else { return }
        let started = ContinuousClock.now
        system.store.durability.sealer.sealAll()
        let ended = ContinuousClock.now
        nextSealing = ended + (ended - started) * Self.sealingPause
    }

    /// Seals everything written, makes it durable, and opens the vault's files again, as the next mount will see them.
    func reopen() throws -> FileSystemTree<VaultFileSystem> {
        system?.sealEverything()
        system?.store.durability.sealer.sealAll()
        try system?.store.log.checkpoint(.end)
        try synchronize()
        return try open()
    }

    private func synchronize() throws(StoreError) { try retrying { linux_syncfs(directory.descriptor.fd) } }

    /// Runs `body` with a workspace for each core, and a common helper, so that one large file takes two cores too.
    static func withWorkspaces<Result>(
        for configuration: VaultConfiguration, _ body: ([Workspace]) throws -> Result
    ) throws -> Result {
        let layout = ChunkLayout(chunkSize: configuration.chunkSize)
        let cores = max(1, min(16, sysconf(Int32(_SC_NPROCESSORS_ONLN))))
        var workspaces: [Workspace] = []
        for _ in 0..<cores { workspaces.append(try Workspace(layout: layout)) }
        return try withRequestHelper { () throws(StoreError) in
            try Workspace(layout: layout)
        } _: { helper in
            for workspace in workspaces { workspace.helper = helper }
            return try body(workspaces)
        }
    }

    /// Seals everything written and makes it durable, even after an error.
    func finish() throws(StoreError) {
        guard let system, !isReadOnly else { return }
        system.shutDown()
        self.system = nil
        try synchronize()
    }
}
