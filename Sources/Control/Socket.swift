internal import Glibc
internal import SystemPackage

/// Owns one socket descriptor of a Unix stream. Any thread.
final class Socket: Sendable {
    let fd: Int32

    init(owning fd: Int32) {
        self.fd = fd
    }

    deinit {
        close(fd)
    }

    /// socket(2): a new one, close-on-exec.
    static func make(isBlocking: Bool) throws(Errno) -> Socket {
        let flags = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        return Socket(owning: try checked(socket(AF_UNIX, Int32(flags), 0)))
    }

    /// Calls `body` with the address of `name` in the directory `directory`.
    ///
    /// By way of /proc/self/fd, which keeps within sun_path's 108 bytes (unix(7)) however long the directory's path is,
    /// and cannot be led elsewhere by a rename.
    static func withAddress<R>(
        of name: String, in directory: Int32, _ body: (UnsafePointer<sockaddr>, socklen_t) -> R
    ) throws(Errno) -> R {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let path = Array("/proc/self/fd/\(directory)/\(name)".utf8)
        let isShort = withUnsafeMutableBytes(of: &address.sun_path) { field in
            guard path.count < field.count else { return false }
            field.copyBytes(from: path)
            return true
        }
        guard isShort else { throw .fileNameTooLong }
        let size = socklen_t(MemoryLayout<sockaddr_un>.size)
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, size) }
        }
    }

    /// Who is at the other end, as of connect(2) or listen(2) (SO_PEERCRED, unix(7)).
    func peer() throws(Errno) -> (processID: Int32, userID: UInt32) {
        // struct ucred { pid_t pid; uid_t uid; gid_t gid; }, which Swift's Glibc does not show.
        var credentials: (pid_t, uid_t, gid_t) = (0, 0, 0)
        var size = socklen_t(MemoryLayout.size(ofValue: credentials))
        try checked(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return (credentials.0, credentials.1)
    }

    /// Bounds how long connect(2), send(2) and recv(2) may block.
    func setTimeout(seconds: Int) throws(Errno) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            try checked(setsockopt(fd, SOL_SOCKET, option, &time, size))
        }
    }
}

/// The result of a call that returns −1 and sets errno.
@discardableResult
func checked(_ result: Int32) throws(Errno) -> Int32 {
    guard result != -1 else { throw Errno(rawValue: errno) }
    return result
}
