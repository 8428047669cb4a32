internal import BackingStore
internal import SystemPackage
internal import VaultControl
internal import VaultStore

/// Who has a vault mounted.
enum VaultUse {
    /// The process that holds the vault's flock, and what it says about its mount, where it answers.
    struct User {
        let holder: VaultHolder
        let status: MountStatus?
    }

    static func find(_ vault: VaultDirectory) -> User? {
        VaultHolder.find(descriptor: vault.root).map { holder in
            User(holder: holder, status: statuses().first { $0.pid == holder.processID })
        }
    }

    /// Refuses at once where a daemon that is alive and well has the vault; lets one that is shutting down pass, since
    /// the mount waits for it.
    /// - Parameter advice: what to do, of the mountpoint.
    /// - Throws: code `inUse`.
    static func check(
        _ vault: VaultDirectory, sharing: VaultDirectory.Sharing, advice: (String) -> String? = { _ in nil }
    ) throws(CommandFailure) {
        do throws(VaultError) {
            try vault.lock(sharing, wait: .zero)
            vault.releaseLock()
        } catch {
            guard case .inUse = error else { throw CommandFailure(error) }
            guard let user = find(vault), let status = user.status, isMounted(status) else { return }
            throw CommandFailure(
                .inUse,
                "\(vault.path.shown) is mounted already\(status.readOnly ? " read-only" : ""): at \(status.mountpoint), "
                    + "by \(user.holder)" + (advice(status.mountpoint).map { ": " + $0 } ?? ""))
        }
    }

    /// Whether a daemon that is alive and well has the vault mounted and may write it.
    static func isMountedForWriting(_ vault: VaultDirectory) throws(CommandFailure) -> Bool {
        do throws(VaultError) {
            try vault.lock(.shared, wait: .zero)
            vault.releaseLock()
            return false
        } catch {
            guard case .inUse = error else { throw CommandFailure(error) }
            return find(vault)?.status.map(isMounted) ?? false
        }
    }

    /// What all daemons of this user say.
    static func statuses() -> [MountStatus] {
        DaemonSearch.ask(DaemonSearch.ownPlaces()) { try? $0.status() }.compactMap { $0 }
    }

    private static func isMounted(_ status: MountStatus) -> Bool {
        guard let table = try? MountTable.read() else { return true }
        return table.entry(at: FilePath(status.mountpoint).bytes)?.isVault ?? false
    }
}
