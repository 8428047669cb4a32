internal import CLinux
internal import Glibc
internal import Logging

/// A small process beside the daemon. A killed daemon may be unable to die: one of its threads waits in the kernel for pages
/// that nobody writes back any more, and the mount hangs. The guardian then ends the FUSE connection. It needs fusectl
/// (systemd mounts it at /sys/fs/fuse/connections) or root. Any thread.
struct Guardian: @unchecked Sendable {
    // @unchecked: the pointer leads to shared memory with one atomic number, which stays mapped.
    private let guardian: OpaquePointer

    /// Nil on failure. The process must have only one thread, which outlives all others.
    static func start() -> Guardian? {
        guard CommandLine.argc > 0, let first = CommandLine.unsafeArgv[0],
            let last = CommandLine.unsafeArgv[Int(CommandLine.argc) - 1]
        else { return nil }
        // The arguments lie one behind the other (execve(2)).
        let size = last + strlen(last) + 1 - first
        guard size > 0, let guardian = linux_start_guardian(first, size) else { return nil }
        return Guardian(guardian: guardian)
    }

    /// - Parameter device: the mount's. Its minor number is the connection's in fusectl.
    func watch(over device: dev_t) {
        linux_guard_connection(guardian, UInt32(truncatingIfNeeded: device & 0xFF | (device >> 12) & 0xFFF00))
    }

    /// Stops watching: the connection has ended in good order.
    func rest() { linux_guard_connection(guardian, 0) }
}

/// Notifies a service manager that the mount is ready: sd_notify(3), one datagram to the socket that `NOTIFY_SOCKET` names.
enum ReadinessNotice {
    private static let message = Array("READY=1\n".utf8)

    /// Does not wait: a manager that does not read the socket has its own timeout. Any thread.
    static func send() {
        guard let value = getenv("NOTIFY_SOCKET") else { return }
        var name = Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
        // A name that is no path begins with a zero byte (unix(7)).
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

/// The log of a daemon in the background: syslog(3), facility daemon.
struct SyslogHandler: LogHandler {
    var logLevel: Logger.Level = .info
    /// Unused.
    var metadata: Logger.Metadata = [:]

    init(label: String) { Self.connection }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        event.message.description.withCString { pointer in
            withVaList([pointer]) { vsyslog(Self.priority(event.level), "%s", $0) }
        }
    }

    private static func priority(_ level: Logger.Level) -> Int32 {
        switch level {
        case .trace, .debug: LOG_DEBUG
        case .info: LOG_INFO
        case .notice: LOG_NOTICE
        case .warning: LOG_WARNING
        case .error: LOG_ERR
        case .critical: LOG_CRIT
        }
    }

    /// LOG_DAEMON of <syslog.h>, a macro with a cast that Swift lacks.
    private static let facility: Int32 = 3 << 3

    /// Made once. openlog(3) keeps the pointer to the name, so it is never freed.
    private static let connection: Void = openlog(strdup("vaultfs"), LOG_PID, facility)
}
