import Foundation
internal import Synchronization

/// Copies of a directory, taken while something is at work on it: what a kill, or a power cut, would leave. They go with
/// the object.
package final class DirectoryCopies: Sendable {
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
        let answer = { @Sendable [self] (_: Bool) -> Int32 in
            do { try take() } catch { taken.withLock { if $0.failure == nil { $0.failure = error } } }
            return 0
        }
        try CallWatcher.watch(directory, answer, during: body)
        if let failure = taken.withLock({ $0.failure }) { throw failure }
    }

    /// Makes the directory what a copy is.
    package func putBack(_ path: String) throws {
        try Command(["rm", "-rf", directory]).run().succeeded()
        try Command(["cp", "-a", path, directory]).run().succeeded()
    }
}
