internal import Glibc
package import SystemPackage

/// The directory of a user's control sockets: `$XDG_RUNTIME_DIR/vaultfs`, for root `/run/vaultfs`, without either
/// `/tmp/vaultfs-UID`. It is the user's alone (mode 0700, owner checked). Any thread.
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

    /// This user's directory for a new daemon, made if need be.
    /// - Parameter environment: gives the value of `XDG_RUNTIME_DIR`.
    /// - Throws: `unsafeDirectory`, `system`.
    package static func make(
        environment: (String) -> String? = environmentVariable
    ) throws(ControlError) -> RuntimeDirectory {
        let places = candidates(user: geteuid(), isSelf: true, environment: environment)
        for place in places.dropLast() {
            // A stale XDG_RUNTIME_DIR (su, a container) is no reason to fail while /tmp is there.
            if let directory = try? make(at: place, user: geteuid()) { return directory }
        }
        guard let last = places.last else { preconditionFailure("internal error: no run-time directory") }
        return try make(at: last, user: geteuid())
    }

    /// The directory at `path`, for `user`, made with mode 0700 if it is not there.
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

    /// The directory at `path`, where it exists and is `user`'s alone.
    package convenience init?(existing path: FilePath, user: UInt32) {
        guard let fd = try? Self.opened(path, user: user) else { return nil }
        self.init(path: path, fd: fd)
    }

    /// Where a daemon of `user` may have its directory, in the order of preference. The environment tells only about the user whose it is.
    package static func candidates(user: UInt32, isSelf: Bool, environment: (String) -> String?) -> [FilePath] {
        var places: [FilePath] = []
        if user == 0 {
            places.append("/run/vaultfs")
        } else {
            if isSelf, let base = environment("XDG_RUNTIME_DIR"), base.hasPrefix("/") {
                places.append(FilePath(base).appending("vaultfs"))
            }
            // Where a login session has it, for one who asks from outside of it (cron, root).
            let session = FilePath("/run/user/\(user)/vaultfs")
            if !places.contains(session) { places.append(session) }
        }
        return places + [FilePath("/tmp/vaultfs-\(user)")]
    }

    private static func open(_ path: FilePath, user: UInt32) throws(ControlError) -> RuntimeDirectory {
        RuntimeDirectory(path: path, fd: try opened(path, user: user))
    }

    /// A descriptor of the directory, checked.
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
        guard fstat(fd, &status) == 0 else { throw .system(Errno(rawValue: errno), "cannot look at", path) }
        guard status.st_uid == user else {
            throw .unsafeDirectory(path, "it belongs to user \(status.st_uid)")
        }
        guard status.st_mode & 0o077 == 0 else {
            throw .unsafeDirectory(path, "its mode is \(String(status.st_mode & 0o7777, radix: 8)), not 700")
        }
    }

    /// The same for every path by which the directory is reached: device and inode.
    package var identity: String {
        var status = stat()
        return fstat(fd, &status) == 0 ? "\(status.st_dev):\(status.st_ino)" : path.string
    }

    /// The name of the socket for a mount at `mountpoint`, an absolute path without links.
    package static func socketName(mountpoint: [UInt8]) -> String {
        // FNV-1a, 64 bits: a name of fixed length. A collision shows: the status has the mountpoint.
        let hash = mountpoint.reduce(UInt64(0xCBF2_9CE4_8422_2325)) { ($0 ^ UInt64($1)) &* 0x100_0000_01B3 }
        let digits = String(hash, radix: 16)
        return "mount-" + String(repeating: "0", count: 16 - digits.count) + digits + socketSuffix
    }

    static let socketSuffix = ".socket"

    /// Which file the socket `name` is now; nil where there is none.
    func inode(of name: String) -> ino_t? {
        var status = stat()
        return fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : nil
    }

    /// Removes the socket `name` where it still is that file: another daemon may have put its own there.
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
