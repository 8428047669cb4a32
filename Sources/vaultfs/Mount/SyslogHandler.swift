internal import Glibc
internal import Logging

/// The log of a daemon in the background: syslog(3), facility daemon.
struct SyslogHandler: LogHandler {
    var logLevel: Logger.Level = .info
    var metadata: Logger.Metadata = [:]

    init(label: String) {
        Self.connection
    }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let all = metadata.merging(event.metadata ?? [:]) { $1 }.sorted { $0.key < $1.key }
        let text = ([event.message.description] + all.map { "\($0.key)=\($0.value)" }).joined(separator: " ")
        text.withCString { pointer in
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

    /// LOG_DAEMON of <syslog.h>, a macro with a cast that Swift does not show.
    private static let facility: Int32 = 3 << 3

    /// Once. openlog(3) keeps the pointer to the name, so that it is never freed.
    private static let connection: Void = openlog(strdup("vaultfs"), LOG_PID, facility)
}
