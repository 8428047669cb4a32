internal import CallWatch
import Foundation
internal import Synchronization

/// Copies of a directory, taken while something is at work on it: what a kill, or a power cut, would leave. They go with
/// the object.
package final class DirectoryCopies: Sendable {
    /// Whom the calls of this process concern, by the path of their directories.
    private static let watching = Mutex<[String: DirectoryCopies]>([:])

    private let directory: String
    private let taken = Mutex<(paths: [String], failure: (any Error)?)>(([], nil))

    /// - Parameter directory: an absolute path without links.
    package init(of directory: String) { self.directory = directory }

    deinit {
        for path in paths { _ = try? Command(["rm", "-rf", path]).run() }
    }

    package var paths: [String] { taken.withLock { $0.paths } }

    /// Copies the directory as it is now, beside it.
    package func take() throws {
        let path = taken.withLock { taken in
            taken.paths.append("\(directory)-copy-\(taken.paths.count)")
            return taken.paths[taken.paths.count - 1]
        }
        try Command(["cp", "-a", directory, path]).run().succeeded()
    }

    /// Takes a copy before each call that `body` makes, in whatever thread, to change something in the directory.
    package func takeBeforeEachChange(_ body: () throws -> Void) throws {
        Self.watching.withLock { $0[directory] = self }
        call_watch_set { DirectoryCopies.willChange($0) }
        defer { Self.watching.withLock { _ = $0.removeValue(forKey: directory) } }
        try body()
        if let failure = taken.withLock({ $0.failure }) { throw failure }
    }

    /// Makes the directory what a copy is.
    package func putBack(_ path: String) throws {
        try Command(["rm", "-rf", directory]).run().succeeded()
        try Command(["cp", "-a", path, directory]).run().succeeded()
    }

    private static func willChange(_ fd: Int32) {
        guard let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(fd)") else {
            return
        }
        let found = watching.withLock { $0.first { path == $0.key || path.hasPrefix($0.key + "/") }?.value }
        guard let found else { return }
        do { try found.take() } catch { found.taken.withLock { if $0.failure == nil { $0.failure = error } } }
    }
}
