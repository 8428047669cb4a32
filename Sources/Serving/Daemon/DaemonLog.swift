internal import Glibc
internal import LinuxSystem
internal import Logging

/// The log of a daemon.
struct DaemonLog: LogHandler {
    var logLevel: Logger.Level = .info
    /// Unused.
    var metadata: Logger.Metadata = [:]
    private let write: @Sendable (Logger.Level, String) -> Void

    private init(_ write: @escaping @Sendable (Logger.Level, String) -> Void) { self.write = write }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) { write(event.level, event.message.description) }

    // MARK: In the background

    /// Begins the log on syslog(3), facility daemon.
    static func beginSyslog() {
        // LOG_DAEMON of <syslog.h>, a macro with a cast unknown to Swift. openlog(3) keeps the pointer to the name.
        openlog(strdup("vaultfs"), LOG_PID, 3 << 3)
        LoggingSystem.bootstrap { _ in
            DaemonLog { level, message in
                message.withCString { pointer in withVaList([pointer]) { vsyslog(level.priority, "%s", $0) } }
            }
        }
    }

    // MARK: In the foreground

    /// Begins the log on stderr: `2026-11-21T10:00:00Z vaultfs: error: …`. The journal itself adds the time and the
    /// program's name. If stderr leads there, a line has only the level, as in sd-daemon(3): `<3>…`.
    static func beginStandardError() {
        let isJournal = isJournal
        LoggingSystem.bootstrap { _ in
            DaemonLog { level, message in
                let mark = level >= .warning ? "\(level): " : ""
                let line = isJournal ? "<\(level.priority)>\(message)" : "\(UtcTime.now()) vaultfs: \(mark)\(message)"
                try? writeAll(Array("\(line)\n".utf8), to: STDERR_FILENO)
            }
        }
    }

    /// True if stderr is the journal's socket, whose device and inode are in `JOURNAL_STREAM` (systemd.exec(5)).
    private static var isJournal: Bool {
        var status = stat()
        guard let value = getenv("JOURNAL_STREAM"), fstat(STDERR_FILENO, &status) == 0 else { return false }
        return String(cString: value) == "\(status.st_dev):\(status.st_ino)"
    }
}

extension Logger.Level {
    /// The priority of syslog(3).
    fileprivate var priority: Int32 {
        switch self {
        case .trace, .debug: LOG_DEBUG
        case .info: LOG_INFO
        case .notice: LOG_NOTICE
        case .warning: LOG_WARNING
        case .error: LOG_ERR
        case .critical: LOG_CRIT
        }
    }
}
