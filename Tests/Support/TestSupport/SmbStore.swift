internal import CallWatch
import Foundation
internal import Synchronization

/// A directory with the behaviour of SMB:
/// - A rename over a file that this process has open fails. All the same the old file is removed at its last close, and
///   until then its name stays taken.
/// - A removed file's name stays taken until the last close by this process.
/// - Locked bytes of a file are unreadable for others. Here the open fails if the first byte is locked.
package final class SmbStore: Sendable {
    private struct File: Equatable {
        let device: dev_t
        let inode: ino_t

        init?(_ result: Int32, _ status: stat) {
            guard result == 0, status.st_mode & S_IFMT == S_IFREG else { return nil }
            (device, inode) = (status.st_dev, status.st_ino)
        }

        /// O_PATH (open(2)). Such a descriptor is not open at the server.
        private static let pathOnly: Int32 = 0o10_000_000

        /// True if one of this process's descriptors has the file open at the server.
        var isOpen: Bool {
            let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
            return descriptors.compactMap { Int32($0) }.contains { fd in
                var status = stat()
                let flags = fcntl(fd, F_GETFL)
                return flags >= 0 && flags & Self.pathOnly == 0 && File(fstat(fd, &status), status) == self
            }
        }
    }

    private struct State {
        /// The removed files by path.
        var removed: [String: File] = [:]
        var refusals = 0
    }

    private static let magic = 0xFE53_4D42
    private static let roots = Mutex<Set<String>>([])
    private let state = Mutex(State())

    package init() {}

    /// Number of refused renames.
    package var refusals: Int { state.withLock { $0.refusals } }

    /// - Parameters:
    ///   - directory: an absolute path without links.
    ///   - answer: the answer to other calls, as in `CallWatcher.watch`.
    package func run<Result>(
        in directory: String, answer: @escaping @Sendable (WatchedCall) -> Int32 = { _ in 0 },
        _ body: () throws -> Result
    ) throws -> Result {
        Self.roots.withLock { _ = $0.insert(directory) }
        type_watch_set { SmbStore.type(of: $0) }
        defer { Self.roots.withLock { _ = $0.remove(directory) } }
        var result: Result?
        let read = { @Sendable (kind: ReadFault.Kind, path: String) -> Int32 in
            if case .open = kind { Self.isLocked(path) ? EACCES : 0 } else { 0 }
        }
        let watched = { @Sendable [self] (call: WatchedCall) -> Int32 in
            let error = answer(call)
            return error != 0 ? error : self.answer(call)
        }
        try ReadFault.during(in: directory, read) {
            try CallWatcher.watch(directory, includesProbe: true, watched) { result = try body() }
        }
        guard let result else { throw TestFailure("no result") }
        return result
    }

    /// Returns true if this process has an exclusive fcntl(2) or flock(2) lock of the first byte (proc_pid_fdinfo(5)).
    private static func isLocked(_ path: String) -> Bool {
        var status = stat()
        guard let file = File(lstat(path, &status), status) else { return false }
        let descriptors = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd")) ?? []
        return descriptors.compactMap { Int32($0) }.contains { fd in
            var other = stat()
            guard File(fstat(fd, &other), other) == file,
                let lines = try? String(contentsOfFile: "/proc/self/fdinfo/\(fd)", encoding: .utf8)
            else { return false }
            return lines.split(separator: "\n").contains { line in
                let words = line.split(separator: " ")
                return line.hasPrefix("lock:") && words.contains("WRITE") && words.dropLast().last == "0"
            }
        }
    }

    private static func type(of fd: Int32) -> Int {
        if roots.withLock({ $0.isEmpty }) { return 0 }
        guard let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(fd)") else {
            return 0
        }
        return roots.withLock { $0.contains { path == $0 || path.hasPrefix($0 + "/") } } ? magic : 0
    }

    private func answer(_ call: WatchedCall) -> Int32 {
        guard [.rename, .create, .link, .remove].contains(call.kind) else { return 0 }
        return state.withLock { state in
            var error: Int32 = 0
            if call.kind == .remove {
                var status = stat()
                if let file = File(lstat(call.path, &status), status), file.isOpen { state.removed[call.path] = file }
            } else if let removed = state.removed[call.path] {
                if removed.isOpen { error = EBUSY } else { state.removed[call.path] = nil }
            } else if call.kind == .rename {
                var status = stat()
                if let file = File(lstat(call.path, &status), status), file.isOpen {
                    state.removed[call.path] = file
                    unlink(call.path)
                    error = EACCES
                }
            }
            if error != 0 && call.kind == .rename { state.refusals += 1 }
            return error
        }
    }
}
