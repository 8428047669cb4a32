internal import LinuxSystem
internal import Logging
internal import Synchronization

/// The files of a view that cannot be read, for `status` and the log. One line for each file, the newest last. Any thread.
final class ViewProblems: Sendable {
    private static let maximumCount = 100

    private let logger: Logger
    private let lines = Mutex<[(path: [UInt8], text: String)]>([])

    init(logger: Logger) { self.logger = logger }

    /// Records and logs a problem, unless it is the last one of the file.
    func note(_ text: String, of path: [UInt8]) {
        let isNew = lines.withLock { lines in
            if let index = lines.firstIndex(where: { $0.path == path }) {
                if lines[index].text == text { return false }
                lines.remove(at: index)
            }
            lines.append((path, text))
            if lines.count > Self.maximumCount { lines.removeFirst() }
            return true
        }
        if isNew { logger.error("\(Self.line(path, text))") }
    }

    /// Removes the problem of a file that has been opened.
    func clear(_ path: [UInt8]) {
        lines.withLock { $0.removeAll { $0.path == path } }
    }

    var all: [String] { lines.withLock { $0.map { Self.line($0.path, $0.text) } } }

    private static func line(_ path: [UInt8], _ text: String) -> String { "\(shown(path)): \(text)" }
}
