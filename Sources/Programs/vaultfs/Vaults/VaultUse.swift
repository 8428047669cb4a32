internal import Control
internal import Daemon
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Finds the process that has mounted a vault.
enum VaultUse {
    /// The longest wait for a daemon that is shutting down.
    static let lockTimeout: Duration = .seconds(10)

    /// A process that has locked the vault, with its status if it runs on this machine and answers.
    struct User {
        let owner: LockOwner
        let status: MountStatus?
    }

    static func find(_ vault: VaultDirectory) -> User? { vault.findLockOwner().map(user) }

    private static func user(_ owner: LockOwner) -> User {
        guard owner.host == nil else { return User(owner: owner, status: nil) }
        let directories = (try? MountTable.read()).map(DaemonSearch.directories) ?? DaemonSearch.ownDirectories()
        let statuses = DaemonSearch.ask(directories) { try? $0.connect().status() }
        return User(owner: owner, status: statuses.first { $0.pid == owner.processID })
    }

    /// Refuses if a running daemon or another machine has the vault, by any path. Allows a daemon of this machine that
    /// is shutting down, because the mount waits for its end.
    /// - Parameter advice: returns the advice from the mountpoint.
    /// - Throws: code `inUse`.
    static func check(
        _ vault: VaultDirectory, sharing: VaultDirectory.Sharing,
        advice: (String) -> String = { "unmount it first: vaultfs unmount \($0)" }
    ) throws(CommandFailure) {
        do throws(VaultError) {
            try vault.lock(sharing, wait: .zero)
            vault.releaseLock()
        } catch {
            guard case .inUse(_, let owner) = error, owner?.host == nil else { throw CommandFailure(error) }
            guard let user = owner.map(user), let status = user.status, isMounted(status) else { return }
            // Make it safe to print, because another user may have chosen it.
            let mountpoint = Console.shown(status.mountpoint)
            throw CommandFailure(
                .inUse,
                "\(vault.path.shown) is mounted already\(status.readOnly ? " read-only" : ""): at \(mountpoint), "
                    + "by \(user.owner): \(advice(mountpoint))")
        }
    }

    /// Returns true if a daemon answers that may write the vault, or another machine has it and is not rekeying.
    static func isMountedForWriting(_ vault: VaultDirectory) throws(CommandFailure) -> Bool {
        do throws(VaultError) {
            try vault.lock(.shared, wait: .zero)
            vault.releaseLock()
            return false
        } catch {
            guard case .inUse(_, let owner) = error else { throw CommandFailure(error) }
            // The other machine may be rekeying.
            if owner?.host != nil { return !vault.configuration.isRekeying }
            // Search by this path only, because another path may show an older state.
            return LockOwner.find(descriptor: vault.descriptor).map(user)?.status != nil
        }
    }

    private static func isMounted(_ status: MountStatus) -> Bool {
        guard let table = try? MountTable.read() else { return true }
        return table.entry(at: FilePath(status.mountpoint).bytes)?.isOurs ?? false
    }
}
