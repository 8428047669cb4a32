internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Unix stream sockets (unix(7)).
extension Descriptor {
    /// Makes a socket, close-on-exec (socket(2)).
    static func streamSocket(isBlocking: Bool) throws(StoreError) -> Descriptor {
        let flags = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | (isBlocking ? 0 : SOCK_NONBLOCK.rawValue)
        return Descriptor(owning: try retrying { socket(AF_UNIX, Int32(flags), 0) })
    }

    /// Calls bind(2) or connect(2) with the address of `name` in `directory`. The path through /proc/self/fd fits into
    /// the 108 bytes of sun_path, and a rename cannot lead it elsewhere.
    func call(
        _ function: (Int32, UnsafePointer<sockaddr>?, socklen_t) -> Int32, _ name: Component, in directory: Descriptor
    ) throws(StoreError) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let path = Array("/proc/self/fd/\(directory.fd)/".utf8) + name.bytes
        guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { throw .system(.fileNameTooLong) }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        try retrying {
            withUnsafeBytes(of: &address) { bytes in
                function(fd, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count))
            }
        }
    }

    /// Returns the process at the other end, as of connect(2) or listen(2) (SO_PEERCRED).
    func peer() throws(StoreError) -> (processID: Int32, userID: UInt32) {
        // struct ucred { pid_t pid; uid_t uid; gid_t gid; }: Swift's Glibc lacks it.
        var credentials: (pid_t, uid_t, gid_t) = (0, 0, 0)
        var size = socklen_t(MemoryLayout.size(ofValue: credentials))
        try retrying { getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) }
        return (credentials.0, credentials.1)
    }

    /// Calls send(2) without SIGPIPE.
    func send(_ bytes: UnsafeRawBufferPointer) throws(StoreError) -> Int {
        try retrying { Glibc.send(fd, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL)) }
    }

    /// Waits until the socket is ready for `event`. Returns false if only the other descriptor is.
    /// - Throws: `ETIMEDOUT` at the deadline, and `ECONNRESET` if one side has hung up.
    func wait(
        for event: Int32, besides other: (fd: Int32, event: Int32) = (-1, 0), until deadline: ContinuousClock.Instant?
    ) throws(StoreError) -> Bool {
        var descriptors = [(fd, event), other].map { pollfd(fd: $0, events: Int16($1), revents: 0) }
        let timeout = deadline.map { ($0 - .now).pollTimeout } ?? -1
        guard try retrying({ poll(&descriptors, 2, timeout) }) > 0 else { throw .system(.timedOut) }
        let ready = Int32(descriptors[0].revents)
        // Bytes that the other side has sent before it hung up can still be read.
        guard event == POLLIN || ready & POLLHUP == 0 else { throw .system(.connectionReset) }
        return ready & event != 0
    }

    /// Sets the timeout of connect(2), send(2) and recv(2), in seconds. 0 means none.
    func setTimeout(seconds: Int) throws(StoreError) {
        var time = timeval(tv_sec: seconds, tv_usec: 0)
        let size = socklen_t(MemoryLayout<timeval>.size)
        for option in [SO_RCVTIMEO, SO_SNDTIMEO] {
            try retrying { setsockopt(fd, SOL_SOCKET, option, &time, size) }
        }
    }
}
