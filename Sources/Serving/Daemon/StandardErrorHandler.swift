internal import Glibc
internal import LinuxSystem
internal import Logging

/// The log of a daemon in the foreground, on stderr: `2026-11-21T10:00:00Z vaultfs: error: …`. The journal itself adds
/// the time and the program's name. If stderr leads there, a line has only the level, as in sd-daemon(3): `<3>…`.
struct StandardErrorHandler: LogHandler {
    var logLevel: Logger.Level = .info
    /// Unused.
    var metadata: Logger.Metadata = [:]

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        let line =
            Self.isJournal
            ? "<\(event.level.priority)>\(event.message)"
            : "\(UtcTime.now()) vaultfs: \(Self.prefix(event.level))\(event.message)"
        try? writeAll(Array("\(line)\n".utf8), to: STDERR_FILENO)
    }

    private static func prefix(_ level: Logger.Level) -> String {
        switch level {
        case .trace, .debug, .info, .notice: ""
        case .warning, .error, .critical: "\(level): "
        }
    }

    /// True if stderr is the journal's socket, whose device and inode are in `JOURNAL_STREAM` (systemd.exec(5)).
    private static let isJournal: Bool = {
        var status = stat()
        guard let value = getenv("JOURNAL_STREAM"), fstat(STDERR_FILENO, &status) == 0 else { return false }
        return String(cString: value) == "\(status.st_dev):\(status.st_ino)"
    }()
}

extension Logger.Level {
    /// The priority of syslog(3).
    var priority: Int32 {
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
