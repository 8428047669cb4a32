internal import Glibc
internal import SystemPackage

/// Owns the descriptor of a Unix stream socket. Any thread.
final class Socket: Sendable {
    let fd: Int32

    init(owning fd: Int32) {
        self.fd = fd
    }

    deinit {
        close(fd)
    }

    /// Makes a socket, close-on-exec (socket(2)).
    static func make(isBlocking: Bool) throws(Errno) -> Socket {
        let flags = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        return Socket(owning: try checked(socket(AF_UNIX, Int32(flags), 0)))
    }

    /// Calls `body` with the address of `name` in `directory`. The path by way of /proc/self/fd fits the 108 bytes of sun_path
    /// (unix(7)), and a rename cannot lead it elsewhere.
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

    /// The process at the other end, as of connect(2) or listen(2) (SO_PEERCRED, unix(7)).
    func peer() throws(Errno) -> (processID: Int32, userID: UInt32) {
        // struct ucred { pid_t pid; uid_t uid; gid_t gid; }: Swift's Glibc lacks it.
        var credentials: (pid_t, uid_t, gid_t) = (0, 0, 0)
        var size = socklen_t(MemoryLayout.size(ofValue: credentials))
        try checked(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size))
        return (credentials.0, credentials.1)
    }

    /// Sets the timeout of connect(2), send(2) and recv(2). 0 is none.
    func setTimeout(seconds: Int) throws(Errno) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            try checked(setsockopt(fd, SOL_SOCKET, option, &time, size))
        }
    }
}

/// Throws errno if a system call has returned −1.
@discardableResult
func checked(_ result: Int32) throws(Errno) -> Int32 {
    guard result != -1 else { throw Errno(rawValue: errno) }
    return result
}
