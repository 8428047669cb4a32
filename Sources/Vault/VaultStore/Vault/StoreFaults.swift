internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The parts of a store that do not work at the moment, and its lost data: for status, the logger and the end of the
/// mount. Never waits for the store. Any thread.
package final class StoreFaults: Sendable {
    /// A part of the store. It has at most one fault at a time.
    package enum Part: Hashable, Sendable {
        /// The store itself: calls fail, for whatever object.
        case store
        case log
        /// Putting the log's entries in place.
        case checkpoint
        /// Putting the changes of the file with this id in place.
        case placing(UInt64)
        /// The length of the file with this id, until another change of its length succeeds.
        case length(UInt64)
        /// Syncing the file with this token.
        case syncing(UInt64)
        case names
        /// The file with this token, whose names another program has removed.
        case removed(UInt64)
        /// The log found at the mount.
        case foundLog
        /// A file returned by the store in an older state than before.
        case oldState
        case writerLock
        /// The record in `vaultfs.lock` of a clean end.
        case end
    }

    private struct State {
        var faults: [Part: String] = [:]
        var lostChunks: UInt64 = 0
        var storeErrors = 0
    }

    /// Maximum number of listed faults, and of named files for each.
    private static let mostListed = 10
    private static let mostNamed = 3
    static let olderFile =
        "the store has returned a file in an older state than before: another program has put it there, or a cache of the store is old"
    /// The end of a text about something that is retried.
    static let retry = "; this is tried again"

    private let state = Mutex(State())
    private let onFault = Observer<String>()
    /// Called with chunks whose acknowledged content is lost.
    package let onLoss = Observer<LostChunks>()

    package init() {}

    /// Adds the fault of a part that does not work. Logs only a new fault.
    func add(_ part: Part, _ text: String) {
        let isNew = state.withLock { $0.faults.updateValue(text, forKey: part) == nil }
        if isNew { onFault.notify(text) }
    }

    func log(_ text: String) { onFault.notify(text) }

    func clear(_ part: Part) { state.withLock { _ = $0.faults.removeValue(forKey: part) } }

    func addStoreError(_ error: StoreError) {
        state.withLock { $0.storeErrors += 1 }
        add(.store, "the vault's store fails (\(error.reason)): check its disk or its connection")
    }

    /// Number of errors of the store itself. Nil if it has no fault.
    var storeErrors: Int? { state.withLock { $0.faults[.store] == nil ? nil : $0.storeErrors } }

    /// Removes the fault of the store itself, unless its errors have become more than `errors`.
    func clearStore(after errors: Int) {
        state.withLock { if $0.storeErrors == errors { $0.faults[.store] = nil } }
    }

    /// Adds chunks with lost acknowledged content. Each fsync of the file's handles fails once.
    func add(_ loss: LostChunks) {
        state.withLock { $0.lostChunks += UInt64(loss.chunks.count) }
        loss.file.parts.syncs.report()
        onLoss.notify(loss)
    }

    /// Adds a fault if a file, just written, has no name, unless it was removed through the mount.
    package func addIfRemoved(_ file: EncryptedFile) {
        guard file.needsSeal || file.isLogged, file.reader.hasNoName else { return }
        add(.removed(file.token), "another program has removed a written file from the vault's directory")
    }

    /// Removes `retry` from the texts, because all retries have ended.
    func endRetries() {
        state.withLock { state in
            for (part, text) in state.faults where text.hasSuffix(Self.retry) {
                state.faults[part] = String(text.dropLast(Self.retry.count))
            }
        }
    }

    /// Calls `log` with the current faults and later ones, a line each.
    func report(to log: @escaping @Sendable (String) -> Void) {
        onFault.set(log)
        for text in state.withLock({ Array($0.faults.values) }) { log(text) }
    }

    /// One line of text for each fault, but only one for the same fault of several files.
    package var texts: [String] { texts(naming: { _ in nil }) }

    /// Returns the same, with names.
    /// - Parameter name: returns the name of the file concerned by a part, or nil if unknown.
    package func texts(naming name: (Part) -> String?) -> [String] {
        let (faults, lost) = state.withLock { ($0.faults, $0.lostChunks) }
        let all = Dictionary(grouping: faults.keys) { faults[$0] ?? "" }.sorted { $0.key < $1.key }
        let lines = all.prefix(Self.mostListed).map { text, parts in
            let names = parts.lazy.compactMap(name).prefix(Self.mostNamed).joined(separator: ", ")
            if parts.count == 1 { return names.isEmpty ? text : "\(text): \(names)" }
            return "\(text): \(parts.count) files" + (names.isEmpty ? "" : ", such as \(names)")
        }
        let rest = all.dropFirst(Self.mostListed).reduce(0) { $0 + $1.value.count }
        return lines + (rest > 0 ? ["\(rest) more files have such problems"] : [])
            + (lost > 0
                ? ["\(lost == 1 ? "a chunk" : "\(lost) chunks") of written data was lost: reading it is an error"] : [])
    }

    /// True if data acknowledged since the opening of the store is lost, not durable, or in doubt.
    package var isDataMissing: Bool {
        state.withLock { $0.lostChunks > 0 || $0.faults.keys.contains { $0 != .foundLog } }
    }
}

extension StoreError {
    private static let ofStore: Set<Int32> = [
        EIO, EROFS, ENODEV, ENOMEDIUM, EUCLEAN, EBADMSG, EREMOTEIO, ENOTCONN, ESHUTDOWN, ETIMEDOUT, ECONNABORTED,
        ECONNREFUSED, ECONNRESET, EHOSTDOWN, EHOSTUNREACH, ENETDOWN, ENETUNREACH, ENETRESET, ENOLINK, EPROTO,
        EBADFD,
    ]

    /// True if the store itself has failed: neither an answer about an object, nor a lack of space.
    var isOfStore: Bool { if case .system(let errno) = self { Self.ofStore.contains(errno.rawValue) } else { false } }
}

/// Chunks of a file with lost acknowledged content. Reading them is an error.
package struct LostChunks: Sendable {
    package let file: EncryptedFile
    package let chunks: Range<UInt64>
}
