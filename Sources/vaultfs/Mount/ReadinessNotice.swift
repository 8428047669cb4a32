internal import Glibc

/// Tells a service manager that started this process, and asks to be told, that the mount is ready: sd_notify(3), one
/// datagram to the socket that `NOTIFY_SOCKET` names.
enum ReadinessNotice {
    private static let message = Array("READY=1\n".utf8)

    /// Nothing where nobody asked. It is lost where the socket has gone, or nobody takes what is in it: the manager gives up by
    /// itself, and who waited would hold up the mount. Any thread.
    static func send() {
        guard let value = getenv("NOTIFY_SOCKET") else { return }
        var name = Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
        // A path, or a name that is no file, which begins with a zero byte (unix(7)).
        if name.first == UInt8(ascii: "@") { name[0] = 0 }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let isShort = withUnsafeMutableBytes(of: &address.sun_path) { field in
            guard !name.isEmpty, name.count < field.count else { return false }
            field.copyBytes(from: name)
            return true
        }
        guard isShort else { return }
        let socket = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return }
        defer { close(socket) }
        let size = socklen_t(MemoryLayout<sa_family_t>.size + name.count)
        withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = sendto(socket, message, message.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT), $0, size)
            }
        }
    }
}
