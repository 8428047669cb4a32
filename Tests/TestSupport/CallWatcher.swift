internal import CallWatch
import Foundation
internal import Synchronization

/// Asks before each call, of whatever thread, that changes something in a directory.
package enum CallWatcher {
    private static let watching = Mutex<[String: @Sendable (Bool) -> Int32]>([:])

    /// - Parameters:
    ///   - directory: an absolute path without links.
    ///   - answer: gets whether the call may fail for want of space; 0, or the errno with which it is to fail.
    package static func watch(
        _ directory: String, _ answer: @escaping @Sendable (_ needsSpace: Bool) -> Int32, during body: () throws -> Void
    ) rethrows {
        watching.withLock { $0[directory] = answer }
        call_watch_set { CallWatcher.answer($0, $1) }
        defer { watching.withLock { _ = $0.removeValue(forKey: directory) } }
        try body()
    }

    /// The disk is full from the call with this number on, of those that may need space; false where none comes so far.
    package static func fullDisk(
        in directory: String, from call: Int, during body: () throws -> Void
    ) rethrows -> Bool {
        let calls = Mutex(0)
        let answer = { @Sendable (needsSpace: Bool) -> Int32 in
            guard needsSpace else { return 0 }
            return calls.withLock { calls in
                calls += 1
                return calls > call ? ENOSPC : 0
            }
        }
        try watch(directory, answer, during: body)
        return calls.withLock { $0 > call }
    }

    private static func answer(_ fd: Int32, _ needsSpace: Bool) -> Int32 {
        guard let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(fd)") else {
            return 0
        }
        let found = watching.withLock { $0.first { path == $0.key || path.hasPrefix($0.key + "/") }?.value }
        return found?(needsSpace) ?? 0
    }
}
