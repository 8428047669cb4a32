internal import Glibc

/// Notifies a service manager that the mount is ready: sd_notify(3), one datagram to the socket `NOTIFY_SOCKET`.
enum ReadinessNotice {
    private static let message = Array("READY=1\n".utf8)

    /// Sends the message without waiting, because a manager that ignores its socket has its own timeout. Any thread.
    static func send() {
        guard let value = getenv("NOTIFY_SOCKET") else { return }
        var name = Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
        // An abstract name begins with a zero byte (unix(7)), written as @.
        if name.first == UInt8(ascii: "@") { name[0] = 0 }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard name.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
        let socket = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return }
        defer { close(socket) }
        let size = socklen_t(MemoryLayout<sa_family_t>.size + name.count)
        withUnsafeBytes(of: &address) { bytes in
            let address = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress
            _ = sendto(socket, message, message.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT), address, size)
        }
    }
}
