internal import Glibc
internal import Logging

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
            withVaList([pointer]) { vsyslog(event.level.priority, "%s", $0) }
        }
    }

    /// LOG_DAEMON of <syslog.h>, a macro with a cast unknown to Swift.
    private static let facility: Int32 = 3 << 3

    /// Made once. The name is never freed, because openlog(3) keeps the pointer to it.
    private static let connection: Void = openlog(strdup("vaultfs"), LOG_PID, facility)
}
