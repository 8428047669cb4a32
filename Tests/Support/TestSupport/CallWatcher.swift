internal import CallWatch
import Foundation
internal import Synchronization

/// A call that changes something, or makes it durable.
package struct WatchedCall: Sendable {
    package enum Kind: Sendable {
        /// Also fallocate(2).
        case write
        case truncate, create
        /// mkdirat(2), symlinkat(2).
        case make
        case link, rename, remove
        /// Changes of mode, times, extended attributes.
        case setAttributes
        /// fsync(2), fdatasync(2).
        case synchronize
        /// syncfs(2).
        case synchronizeAll

        fileprivate init(_ kind: watched_kind) {
            switch kind {
            case WATCHED_WRITE, WATCHED_ALLOCATION: self = .write
            case WATCHED_TRUNCATE: self = .truncate
            case WATCHED_CREATE: self = .create
            case WATCHED_MAKE: self = .make
            case WATCHED_LINK: self = .link
            case WATCHED_RENAME: self = .rename
            case WATCHED_REMOVE: self = .remove
            case WATCHED_ATTRIBUTES: self = .setAttributes
            case WATCHED_SYNC, WATCHED_SYNC_DATA: self = .synchronize
            default: self = .synchronizeAll
            }
        }
    }

    package let kind: Kind
    /// An absolute path of the file or directory, or its new name.
    package let path: String
    /// The source of a rename or link.
    package let source: String?
    /// True for fdatasync(2), which may not sync the times.
    package let isDataOnly: Bool
    /// The descriptor of the file, or of the directory with the name.
    package let descriptor: Int32
    /// The bytes to be written or allocated.
    package let range: Range<Int>
    /// The new size of a truncation.
    package let size: Int
    /// The mode of fallocate(2). Nil for any other call.
    package let allocationMode: Int32?

    package var isChange: Bool { kind != .synchronize && kind != .synchronizeAll }
    /// True if the call can fail for lack of space.
    package var needsSpace: Bool { isChange && ![.truncate, .remove, .setAttributes].contains(kind) }

    /// Nil for a descriptor that is closed, or whose object has no path.
    fileprivate init?(_ call: watched_call) {
        guard let path = Self.path(call.fd, call.name) else { return nil }
        self.path = path
        source = call.source_name.flatMap { Self.path(call.source_fd, $0) }
        kind = Kind(call.kind)
        (descriptor, size) = (call.fd, Int(call.size))
        allocationMode = call.kind == WATCHED_ALLOCATION ? call.mode : nil
        range = Int(call.offset)..<Int(call.offset + max(0, call.size))
        isDataOnly = call.kind == WATCHED_SYNC_DATA
    }

    private static func path(_ fd: Int32, _ name: UnsafePointer<CChar>?) -> String? {
        let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/fd/\(fd)")
        guard let name else { return path }
        return path.map { $0 + "/" + String(cString: name) }
    }
}

/// A watcher of calls, by any thread, that change a directory or make it durable: it calls `answer` before each.
package enum CallWatcher {
    /// An answer for half a call: only the first half of a pwrite(2) or pread(2) is made, and setxattr(2) leaves an
    /// empty value.
    package static let inPart = Int32(CALL_IN_PART)

    private struct Watch {
        let answer: @Sendable (WatchedCall) -> Int32
        let includesAttributes: Bool
        let includesProbe: Bool
    }

    private static let watching = Mutex<[String: Watch]>([:])

    /// Returns true for the directory of the probe of a store's abilities (StoreTraits), and for its content.
    static func isOfProbe(_ path: String) -> Bool { path.contains("/vaultfs.tmp.probe-") }

    /// - Parameters:
    ///   - directory: an absolute path without links.
    ///   - includesAttributes: also watches calls that set modes, times and extended attributes.
    ///   - includesProbe: also watches the probe of the store's abilities, whose failures are answers.
    ///   - answer: returns 0, the call's errno, or `inPart`.
    package static func watch(
        _ directory: String, includesAttributes: Bool = false, includesProbe: Bool = false,
        _ answer: @escaping @Sendable (WatchedCall) -> Int32,
        during body: () throws -> Void
    ) rethrows {
        let watch = Watch(answer: answer, includesAttributes: includesAttributes, includesProbe: includesProbe)
        watching.withLock { $0[directory] = watch }
        call_watch_set { $0.map { CallWatcher.answer($0.pointee) } ?? 0 }
        defer { watching.withLock { _ = $0.removeValue(forKey: directory) } }
        try body()
    }

    /// Makes the disk full for calls that may need space, from this number on. Returns false if there were fewer.
    package static func fullDisk(
        in directory: String, from call: Int, during body: () throws -> Void
    ) rethrows -> Bool {
        let calls = Mutex(0)
        let answer = { @Sendable (watched: WatchedCall) -> Int32 in
            guard watched.needsSpace else { return 0 }
            return calls.withLock { calls in
                calls += 1
                return calls > call ? ENOSPC : 0
            }
        }
        try watch(directory, answer, during: body)
        return calls.withLock { $0 > call }
    }

    private static func answer(_ call: watched_call) -> Int32 {
        guard watching.withLock({ !$0.isEmpty }), let call = WatchedCall(call) else { return 0 }
        let path = call.path
        let found = watching.withLock { $0.first { path == $0.key || path.hasPrefix($0.key + "/") }?.value }
        guard let found, found.includesAttributes || call.kind != .setAttributes,
            found.includesProbe || !isOfProbe(path)
        else { return 0 }
        return found.answer(call)
    }
}
