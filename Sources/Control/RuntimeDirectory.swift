internal import Glibc
package import SystemPackage

/// The directory of a user's control sockets: `$XDG_RUNTIME_DIR/vaultfs`, for root `/run/vaultfs`, and without these
/// `/tmp/vaultfs-UID`. It must belong to the user and have mode 0700. Any thread.
package final class RuntimeDirectory: Sendable {
    package let path: FilePath
    let fd: Int32

    private init(path: FilePath, fd: Int32) {
        self.path = path
        self.fd = fd
    }

    deinit {
        close(fd)
    }

    /// Opens this user's directory for a new daemon, or makes it.
    /// - Parameter environment: returns the value of `XDG_RUNTIME_DIR`.
    /// - Throws: `unsafeDirectory`, `system`.
    package static func make(
        environment: (String) -> String? = environmentVariable
    ) throws(ControlError) -> RuntimeDirectory {
        let paths = candidates(user: geteuid(), isSelf: true, environment: environment)
        for path in paths.dropLast() {
            // XDG_RUNTIME_DIR may be stale (su, a container). /tmp is still there.
            if let directory = try? make(at: path, user: geteuid()) { return directory }
        }
        guard let last = paths.last else { preconditionFailure("internal error: no run-time directory") }
        return try make(at: last, user: geteuid())
    }

    /// Opens the directory at `path`, or makes it with mode 0700.
    package static func make(at path: FilePath, user: UInt32) throws(ControlError) -> RuntimeDirectory {
        if path.withPlatformString({ mkdir($0, 0o700) }) == -1, errno != EEXIST {
            throw .system(Errno(rawValue: errno), "cannot make", path)
        }
        return try open(path, user: user)
    }

    /// getenv(3).
    package static func environmentVariable(_ name: String) -> String? {
        getenv(name).map { String(cString: $0) }
    }

    /// Opens the directory at `path`. Nil if it does not exist or is not `user`'s alone.
    package convenience init?(existing path: FilePath, user: UInt32) {
        guard let fd = try? Self.opened(path, user: user) else { return nil }
        self.init(path: path, fd: fd)
    }

    /// The paths at which a daemon of `user` may have its directory, the preferred one first.
    /// - Parameter isSelf: the environment is that user's.
    package static func candidates(user: UInt32, isSelf: Bool, environment: (String) -> String?) -> [FilePath] {
        var paths: [FilePath] = []
        if user == 0 {
            paths.append("/run/vaultfs")
        } else {
            if isSelf, let base = environment("XDG_RUNTIME_DIR"), base.hasPrefix("/") {
                paths.append(FilePath(base).appending("vaultfs"))
            }
            // The path of a login session, for a caller outside of it (cron, root).
            let session = FilePath("/run/user/\(user)/vaultfs")
            if !paths.contains(session) { paths.append(session) }
        }
        return paths + [FilePath("/tmp/vaultfs-\(user)")]
    }

    private static func open(_ path: FilePath, user: UInt32) throws(ControlError) -> RuntimeDirectory {
        RuntimeDirectory(path: path, fd: try opened(path, user: user))
    }

    private static func opened(_ path: FilePath, user: UInt32) throws(ControlError) -> Int32 {
        let fd = path.withPlatformString { Glibc.open($0, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) }
        guard fd >= 0 else { throw .system(Errno(rawValue: errno), "cannot open", path) }
        do throws(ControlError) {
            try check(fd, path, user: user)
        } catch {
            close(fd)
            throw error
        }
        return fd
    }

    private static func check(_ fd: Int32, _ path: FilePath, user: UInt32) throws(ControlError) {
        var status = stat()
        guard fstat(fd, &status) == 0 else { throw .system(Errno(rawValue: errno), "cannot examine", path) }
        guard status.st_uid == user else {
            throw .unsafeDirectory(path, "it belongs to user \(status.st_uid)")
        }
        guard status.st_mode & 0o077 == 0 else {
            throw .unsafeDirectory(path, "its mode is \(String(status.st_mode & 0o7777, radix: 8)), not 700")
        }
    }

    /// The directory's device and inode, the same for every path that leads to it.
    package var identity: String {
        var status = stat()
        return fstat(fd, &status) == 0 ? "\(status.st_dev):\(status.st_ino)" : path.string
    }

    /// The name of the socket for a mount at `mountpoint`, an absolute path without links.
    package static func socketName(mountpoint: [UInt8]) -> String {
        // FNV-1a, 64 bits, for a name of fixed length. A collision can be seen: the status has the mountpoint.
        let hash = mountpoint.reduce(UInt64(0xCBF2_9CE4_8422_2325)) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        let digits = String(hash, radix: 16)
        return "mount-" + String(repeating: "0", count: 16 - digits.count) + digits + socketSuffix
    }

    static let socketSuffix = ".socket"

    /// The inode of the socket `name`. Nil if there is none.
    func inode(of name: String) -> ino_t? {
        var status = stat()
        return fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : nil
    }

    /// Removes the socket `name` if it still has that inode: another daemon may have put its own there.
    func remove(_ name: String, inode: ino_t) {
        if self.inode(of: name) == inode { unlinkat(fd, name, 0) }
    }

    /// The names of all sockets in the directory.
    package func socketNames() -> [String] {
        let copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0 else { return [] }
        guard let stream = fdopendir(copy) else {
            close(copy)
            return []
        }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if name.hasPrefix("mount-"), name.hasSuffix(Self.socketSuffix) { names.append(name) }
        }
        return names.sorted()
    }
}
