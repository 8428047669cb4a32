internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// A vault, by a path typed by a person, who may have meant its mountpoint.
enum GivenVault {
    /// Returns the path of the vault that a person has named by its path or by its label. A vault at the path counts
    /// first.
    /// - Throws: code `failure` if the list of vaults cannot be read.
    static func path(_ typed: FilePath) throws(CommandFailure) -> FilePath {
        if isOne(typed) { return typed }
        return try KnownVaults.vault(typed: typed).map { FilePath($0.path) } ?? typed
    }

    /// - Throws: code `notAVault`, with the vault's path if the given path is its mountpoint.
    static func open(_ typed: FilePath) throws(CommandFailure) -> VaultDirectory {
        let path = try path(typed)
        do throws(VaultError) { return try VaultDirectory.open(path) } catch {
            guard case .notAVault = error else { throw CommandFailure(error) }
            if let (file, program) = EncryptedSource.foreign(path) {
                throw CommandFailure(
                    .notAVault,
                    "\(path.shown) holds \(file), so it is a directory of \(program), not a vault: mount it with \(program), and "
                        + "copy the files with 'vaultfs import' ('man vaultfs-transfer')")
            }
            guard let mount = try? MountTable.Entry(at: path) else { throw CommandFailure(error) }
            let source = FilePath(bytes: mount.source).shown
            throw CommandFailure(.notAVault, "\(path.shown) is where \(source) is mounted: give \(source)")
        }
    }

    /// Returns true if a directory looks like a vault.
    static func isOne(_ path: FilePath) -> Bool {
        path.appending(entry: VaultDirectory.configurationEntry).withPlatformString { access($0, F_OK) } == 0
    }
}
