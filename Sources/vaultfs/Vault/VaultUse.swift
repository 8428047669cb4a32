internal import Control
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Who has a vault mounted.
enum VaultUse {
    /// The process that has the vault, and what it says about its mount, where it is one of this machine that answers.
    struct User {
        let holder: LockOwner
        let status: MountStatus?
    }

    static func find(_ vault: VaultDirectory) -> User? {
        vault.findLockOwner().map(user)
    }

    private static func user(_ holder: LockOwner) -> User {
        guard holder.host == nil else { return User(holder: holder, status: nil) }
        let places = (try? MountTable.read()).map(DaemonSearch.places) ?? DaemonSearch.ownPlaces()
        return User(holder: holder, status: statuses(places).first { $0.pid == holder.processID })
    }

    /// Refuses at once where a daemon that is alive and well has the vault, by whatever path, or another machine; lets one of
    /// this machine that is shutting down pass, since the mount waits for it.
    /// - Parameter advice: what to do, of the mountpoint.
    /// - Throws: code `inUse`.
    static func check(
        _ vault: VaultDirectory, sharing: VaultDirectory.Sharing,
        advice: (String) -> String = { "unmount it first: vaultfs unmount \($0)" }
    ) throws(CommandFailure) {
        do throws(VaultError) {
            try vault.lock(sharing, wait: .zero)
            vault.releaseLock()
        } catch {
            guard case .inUse(_, let holder) = error, holder?.host == nil else { throw CommandFailure(error) }
            guard let user = holder.map(user), let status = user.status, isMounted(status) else { return }
            // It may be another user's to choose.
            let mountpoint = Console.shown(status.mountpoint)
            throw CommandFailure(
                .inUse,
                "\(vault.path.shown) is mounted already\(status.readOnly ? " read-only" : ""): at \(mountpoint), "
                    + "by \(user.holder): \(advice(mountpoint))")
        }
    }

    /// Whether a daemon that answers has the vault and may write it, or another machine has it, which nobody here can ask.
    static func isMountedForWriting(_ vault: VaultDirectory) throws(CommandFailure) -> Bool {
        do throws(VaultError) {
            try vault.lock(.shared, wait: .zero)
            vault.releaseLock()
            return false
        } catch {
            guard case .inUse(_, let holder) = error else { throw CommandFailure(error) }
            // It may be rekeying.
            if holder?.host != nil { return !vault.configuration.isRekeying }
            // By this path: what another shows may be older.
            return LockOwner.find(descriptor: vault.root).map(user)?.status != nil
        }
    }

    /// Returns true if the daemon that has the vault reports that it is completing the remains of an unclean end.
    static func isCompleting(_ vault: VaultDirectory) -> Bool {
        guard case .object(let fields) = find(vault)?.status?.statistics else { return false }
        return fields["isCompleting"] == .bool(true)
    }

    /// What all daemons of this user say.
    static func statuses(_ places: [DaemonSearch.Place] = DaemonSearch.ownPlaces()) -> [MountStatus] {
        DaemonSearch.ask(places) { try? $0.status() }.compactMap { $0 }
    }

    private static func isMounted(_ status: MountStatus) -> Bool {
        guard let table = try? MountTable.read() else { return true }
        return table.entry(at: FilePath(status.mountpoint).bytes)?.isVault ?? false
    }
}
