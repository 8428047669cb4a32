import Foundation
internal import Synchronization

/// The calls that change a directory, in order. Each has the changes that a power cut before it could lose: contents
/// unsynced since they were written, and names unsynced since they were given. Temporary names do not count, because
/// they may be lost.
///
/// The model has exactly the guarantees of POSIX: fsync(2) of a file keeps its contents, fsync(2) of a directory keeps
/// the names in it. A new directory's content before it has its name is left to the file system, which keeps synced
/// files.
package final class CallLog: Sendable {
    package struct Entry: Sendable {
        package let call: WatchedCall
        /// The unsynced changes before the call: files by path, and the names in a directory as its path with a slash.
        package let unsynchronized: Set<String>
    }

    private struct State {
        var entries: [Entry] = []
        var unsynchronized: Set<String> = []
    }

    private let state = Mutex(State())

    /// Records the calls of `body` in the directory, by any thread.
    /// - Parameters:
    ///   - directory: an absolute path without links.
    ///   - isIgnored: true for calls to be made, but not recorded.
    package init(
        of directory: String, ignoring isIgnored: @escaping @Sendable (WatchedCall) -> Bool = { _ in false },
        _ body: () throws -> Void
    ) throws {
        let answer = { @Sendable [self] (call: WatchedCall) -> Int32 in
            if !isIgnored(call) { state.withLock { Self.add(call, to: &$0) } }
            return 0
        }
        try CallWatcher.watch(directory, answer, during: body)
    }

    /// The changing calls.
    package var changes: [Entry] { state.withLock { $0.entries.filter(\.call.isChange) } }
    /// Changes that a power cut could lose after the last call.
    package var unsynchronized: Set<String> { state.withLock { $0.unsynchronized } }

    /// Returns the calls that give an object this name, in any directory.
    package func renames(to name: String) -> [Entry] {
        changes.filter { $0.call.kind == .rename && $0.call.path.hasSuffix("/" + name) }
    }

    /// The calls that name a written file while its data could still be lost.
    package var unsafeRenames: [String] {
        changes.compactMap { entry in
            guard entry.call.kind == .rename, let source = entry.call.source, Self.isTemporary(source) else {
                return nil
            }
            let isUnsafe = entry.unsynchronized.contains {
                !$0.hasSuffix("/") && ($0 == source || $0.hasPrefix(source + "/"))
            }
            return isUnsafe ? "\(source) to \(entry.call.path)" : nil
        }
    }

    /// Returns the changes directly after a call accepted by `isSuch`, if they could become durable before it.
    package func overtaken(_ isSuch: (WatchedCall) -> Bool) -> [String] {
        let changes = changes
        return zip(changes, changes.dropFirst()).compactMap { first, next in
            guard isSuch(first.call) else { return nil }
            let names = Self.parent(first.call.path) + "/"
            return next.unsynchronized.contains(names) ? "\(first.call.path) by \(next.call.path)" : nil
        }
    }

    private static func add(_ call: WatchedCall, to state: inout State) {
        state.entries.append(Entry(call: call, unsynchronized: state.unsynchronized))
        switch call.kind {
        case .write, .truncate: state.unsynchronized.insert(call.path)
        case .create:
            guard !FileManager.default.fileExists(atPath: call.path) else { return }
            state.unsynchronized.insert(call.path)
            addName(call.path, to: &state)
        case .make, .link: addName(call.path, to: &state)
        case .rename:
            if let source = call.source {
                state.unsynchronized = Set(
                    state.unsynchronized.map { path in
                        path == source || path.hasPrefix(source + "/") ? call.path + path.dropFirst(source.count) : path
                    })
                addName(source, to: &state)
            }
            addName(call.path, to: &state)
        case .remove:
            state.unsynchronized = state.unsynchronized.filter { $0 != call.path && !$0.hasPrefix(call.path + "/") }
            addName(call.path, to: &state)
        case .setAttributes: break
        case .synchronize: state.unsynchronized.subtract([call.path, call.path + "/"])
        case .synchronizeAll: state.unsynchronized = []
        }
    }

    private static func addName(_ path: String, to state: inout State) {
        if !isTemporary(path) { state.unsynchronized.insert(parent(path) + "/") }
    }

    private static func parent(_ path: String) -> String { (path as NSString).deletingLastPathComponent }

    private static func isTemporary(_ path: String) -> Bool {
        (path as NSString).lastPathComponent.hasPrefix("vaultfs.tmp.")
    }
}
