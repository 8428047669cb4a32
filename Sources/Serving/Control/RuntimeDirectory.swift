internal import Glibc
package import LinuxSystem
package import SystemPackage

/// The directory of a user's control sockets: `$XDG_RUNTIME_DIR/vaultfs`, else `/run/user/UID/vaultfs`, for root
/// `/run/vaultfs`, and without these `/tmp/vaultfs-UID`. It must belong to the user and have mode 0700. Any thread.
package final class RuntimeDirectory: Sendable {
    package let path: FilePath
    let descriptor: Descriptor
    /// The device and inode, the same for every path to the directory.
    package let identity: FileIdentity

    /// Opens the directory at `path`.
    /// - Throws: `system`, or `unsafeDirectory` if the directory is not `user`'s alone.
    package init(existing path: FilePath, user: UInt32) throws(ControlError) {
        self.path = path
        let status: stat
        do throws(StoreError) {
            descriptor = try Descriptor(path: path, flags: O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
            status = try descriptor.status()
        } catch {
            throw .system(error.errno, "cannot open", path)
        }
        identity = FileIdentity(status)
        guard status.st_uid == user else { throw .unsafeDirectory(path, "it belongs to user \(status.st_uid)") }
        guard status.st_mode & 0o077 == 0 else {
            throw .unsafeDirectory(path, "its mode is \(String(status.st_mode & 0o7777, radix: 8)), not 700")
        }
    }

    /// Opens this user's directory for a new daemon, or makes it.
    /// - Throws: `unsafeDirectory`, `system`.
    package static func make() throws(ControlError) -> RuntimeDirectory {
        // Try the next path on any error, because XDG_RUNTIME_DIR may be stale (su, a container). /tmp always exists.
        let paths = own
        for path in paths.dropLast() {
            if let directory = try? make(at: path, user: geteuid()) { return directory }
        }
        return try make(at: paths[paths.count - 1], user: geteuid())
    }

    /// Opens the directory at `path`, or makes it with mode 0700.
    /// - Throws: `system` with errno, or `unsafeDirectory` with the reason.
    package static func make(at path: FilePath, user: UInt32) throws(ControlError) -> RuntimeDirectory {
        if path.withPlatformString({ mkdir($0, 0o700) }) == -1, errno != EEXIST {
            throw .system(currentErrno(), "cannot make", path)
        }
        return try RuntimeDirectory(existing: path, user: user)
    }

    /// The paths at which a daemon of this user may have its directory, the preferred one first.
    package static var own: [FilePath] {
        candidates(user: geteuid(), base: getenv("XDG_RUNTIME_DIR").map { String(cString: $0) })
    }

    /// The paths at which a daemon of `user` may have its directory, the preferred one first.
    /// - Parameter base: that user's `XDG_RUNTIME_DIR`. Nil if unknown.
    package static func candidates(user: UInt32, base: String?) -> [FilePath] {
        let last = FilePath("/tmp/vaultfs-\(user)")
        if user == 0 { return ["/run/vaultfs", last] }
        // A caller outside of a login session (cron, root) also needs the path of such a session.
        let session = FilePath("/run/user/\(user)/vaultfs")
        guard let base, base.hasPrefix("/") else { return [session, last] }
        let path = FilePath(base).appending("vaultfs")
        return path == session ? [session, last] : [path, session, last]
    }

    private static let beginning: Component = "mount-"
    private static let ending: Component = ".socket"

    /// The name of the socket for a mount at `mountpoint`, an absolute path without links.
    package static func socketName(mountpoint: [UInt8]) -> Component {
        // FNV-1a, 64 bits, gives a name of fixed length. Clients notice a collision by the mountpoint in the status.
        let hash = mountpoint.reduce(UInt64(0xCBF2_9CE4_8422_2325)) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        return beginning + Component(hexadecimal: hash) + ending
    }

    /// The inode of the socket `name`. Nil if there is none.
    func inode(of name: Component) -> ino_t? { try? descriptor.status(of: name).st_ino }

    /// Removes the socket `name` if it still has this inode, because another daemon may have put its own there.
    func remove(_ name: Component, inode: ino_t) {
        if self.inode(of: name) == inode { descriptor.removeQuietly(name) }
    }

    package func socketNames() -> [Component] {
        guard let listed = try? descriptor.openedForReading() else { return [] }
        var reader = DirectoryReader(listed)
        var names: [Component] = []
        while let name = try? reader.next() {
            let isSocket =
                name.starts(with: Self.beginning) && name.suffix(Self.ending.count).elementsEqual(Self.ending)
            if isSocket { names.append(name) }
        }
        return names.sorted { $0.lexicographicallyPrecedes($1) }
    }
}
