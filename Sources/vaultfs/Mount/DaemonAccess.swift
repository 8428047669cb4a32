internal import Control
internal import LinuxSystem
internal import SystemPackage

/// Finds the daemon of a mountpoint that a person named.
enum DaemonAccess {
    /// The mount at `path`, a vault's, and its path as the kernel spells it.
    /// - Throws: code `mountpoint`.
    static func mount(at path: FilePath) throws(CommandFailure) -> (path: FilePath, entry: MountTable.Entry) {
        let table = try MountTable.read()
        let resolved = try resolve(path, in: table)
        guard let entry = table.entry(at: resolved.bytes) else {
            throw CommandFailure(.mountpoint, "not mounted: \(path.shown)")
        }
        guard entry.isVault else {
            throw CommandFailure(.mountpoint, "not a vault: \(resolved.shown) is a mount of type \(entry.type)")
        }
        return (resolved, entry)
    }

    private static func resolve(_ path: FilePath, in table: MountTable) throws(CommandFailure) -> FilePath {
        do throws(Errno) {
            let resolved = try ResolvedPath.ofMountpoint(path)
            // Where nothing is mounted at that name, it may be a link to where something is.
            return try table.entry(at: resolved.bytes) == nil ? ResolvedPath.of(path) : resolved
        } catch {
            throw CommandFailure(.mountpoint, "cannot look at \(path.shown): \(error)")
        }
    }

    /// A connection to the daemon of a mount.
    /// - Throws: `noDaemon`.
    static func connect(_ mount: (path: FilePath, entry: MountTable.Entry)) throws(ControlError) -> ControlClient {
        guard let socket = socket(of: mount) else { throw .noDaemon }
        return try socket.connect()
    }

    static func status(of path: FilePath) throws(CommandFailure) -> MountStatus {
        let mount = try mount(at: path)
        do throws(ControlError) {
            guard let socket = socket(of: mount) else { throw .noDaemon }
            return try socket.status()
        } catch {
            throw CommandFailure(.failure, "\(mount.path.shown): \(error)")
        }
    }
}
