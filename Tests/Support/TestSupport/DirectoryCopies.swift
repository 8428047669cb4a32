import Foundation
internal import Synchronization

/// Copies of a directory, taken while a program changes it, in the states that a kill or a power cut would leave.
/// Removed with the object.
package final class DirectoryCopies: Sendable {
    private let directory: String
    private let taken = Mutex<(paths: [String], failure: (any Error)?)>(([], nil))

    /// - Parameter directory: an absolute path without links.
    package init(of directory: String) { self.directory = directory }

    deinit {
        for path in paths { _ = try? Command(["rm", "-rf", path]).run() }
    }

    package var paths: [String] { taken.withLock { $0.paths } }

    /// Copies the directory's current state, beside it.
    package func take() throws {
        let path = taken.withLock { taken in
            taken.paths.append("\(directory)-copy-\(taken.paths.count)")
            return taken.paths[taken.paths.count - 1]
        }
        try Command(["cp", "-a", directory, path]).run().succeeded()
    }

    /// Takes a copy before each call of `body`, by any thread, that changes something in the directory.
    /// - Parameters:
    ///   - stride: copies only before every stride-th call, beginning with the first.
    ///   - includingAttributes: also copies before calls that set modes, times and extended attributes.
    package func takeBeforeEachChange(
        every stride: Int = 1, includingAttributes: Bool = false, _ body: () throws -> Void
    ) throws {
        let calls = Mutex(0)
        let answer = { @Sendable [self] (call: WatchedCall) -> Int32 in
            guard call.isChange else { return 0 }
            let number = calls.withLock { calls in
                defer { calls += 1 }
                return calls
            }
            guard number.isMultiple(of: stride) else { return 0 }
            do { try OrdinaryUser.actAsRoot(take) } catch {
                taken.withLock { if $0.failure == nil { $0.failure = error } }
            }
            return 0
        }
        try CallWatcher.watch(directory, includesAttributes: includingAttributes, answer, during: body)
        if let failure = taken.withLock({ $0.failure }) { throw failure }
    }

    /// Restores the directory from a copy.
    package func putBack(_ path: String) throws {
        try Command(["rm", "-rf", directory]).run().succeeded()
        try Command(["cp", "-a", path, directory]).run().succeeded()
    }
}
