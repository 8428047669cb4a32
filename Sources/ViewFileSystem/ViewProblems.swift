internal import FileSystem
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import ViewFormats

/// What does not work of a view, for `status` and the log: one line a file, the newest last. Any thread.
final class ViewProblems: Sendable {
    /// More than people read.
    private static let most = 100

    private let logger: Logger
    private let lines = Mutex<[(path: [UInt8], text: String)]>([])

    init(logger: Logger) {
        self.logger = logger
    }

    /// Remembers and logs it, unless it is what was said of the file before.
    func note(_ text: String, of path: [UInt8]) {
        let isNew = lines.withLock { lines in
            if let index = lines.firstIndex(where: { $0.path == path }) {
                if lines[index].text == text { return false }
                lines.remove(at: index)
            }
            lines.append((path, text))
            if lines.count > Self.most { lines.removeFirst() }
            return true
        }
        if isNew { logger.error("\(Self.line(path, text))") }
    }

    /// The file works.
    func clear(_ path: [UInt8]) {
        lines.withLock { lines in
            if lines.isEmpty { return }
            lines.removeAll { $0.path == path }
        }
    }

    var all: [String] { lines.withLock { $0.map { Self.line($0.path, $0.text) } } }

    private static func line(_ path: [UInt8], _ text: String) -> String {
        "\(shown(path)): \(text)"
    }
}
