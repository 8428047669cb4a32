internal import CLinux
internal import LinuxSystem

/// The keys of a view. Keeps a bounded number in memory, and fetches others from `KeySources`. Any thread.
///
/// Does not keep failures, so the next fetch tries again.
package final class KeyStore: Sendable {
    /// Receives the result of a prefetch, on a thread of the store. Must not call `stop`.
    package typealias Completion = @Sendable (KeyName, Result<KeyMaterial, ViewError>) -> Void

    /// One fetch, awaited by all threads that want the key. Under the monitor's lock.
    private final class Load {
        var outcome: Result<KeyMaterial, ViewError>?

        init(_ outcome: Result<KeyMaterial, ViewError>? = nil) { self.outcome = outcome }
    }

    private struct State {
        /// The reason for which keys are refused; nil if they are not.
        var refusal: ViewError?
        var isStopped = false
        var shared: KeyMaterial?
        var cache: KeyCache
        var loads: [KeyName: Load] = [:]
        /// Number of threads inside `KeySources.load`, including those of loads ended by `forget`.
        var loadingThreads = 0
        var queue: ArraySlice<(name: KeyName, completion: Completion)> = []
        var threads: [BackgroundThread] = []

        mutating func find(_ name: KeyName) -> KeyMaterial? { name == .shared ? shared : cache.find(name) }

        mutating func nextRequest() -> Next<(name: KeyName, completion: Completion)> {
            if isStopped { return .end }
            defer { if queue.isEmpty { queue = [] } }
            return queue.popFirst().map { .item($0) } ?? .wait
        }
    }

    private static let threadCount = 4
    /// Maximum number of waiting prefetches.
    package static let queueLimit = 65_536

    private let sources: KeySources
    private let state: Monitor<State>

    /// - Parameters:
    ///   - shared: the one key of the view, if it has one.
    ///   - capacity: maximum number of keys in memory.
    package init(_ sources: KeySources, shared: KeyMaterial? = nil, capacity: Int = 65_536) {
        self.sources = sources
        state = Monitor(State(shared: shared, cache: KeyCache(capacity: capacity)))
    }

    /// True after `forget` or `stop`.
    package var isClosed: Bool { state.access { $0.refusal != nil } }

    /// Returns the key if it is in memory. Does not block.
    package func find(_ name: KeyName) -> KeyMaterial? { state.access { $0.find(name) } }

    /// Returns the key if it is in memory, unless its file in the source has changed. Keeps the key of a removed file.
    /// Call this at an open.
    package func findCurrent(_ name: KeyName) -> KeyMaterial? {
        let found = state.access { state in state.find(name).map { ($0, state.cache.stamp(of: name)) } }
        guard let (material, stamp) = found else { return nil }
        if let stamp, let current = sources.stamp(of: name), current != stamp {
            state.access { $0.cache.remove(name) }
            return nil
        }
        return material
    }

    /// Returns the key from memory, or fetches it. Blocks for little more than the key command's timeout.
    /// - Throws: `noKey`, with the tried sources; `.store(.locked)` after `forget`, which also ends waits.
    package func fetch(_ name: KeyName) throws(ViewError) -> KeyMaterial {
        let (load, isNew) = state.access { state in
            if let refusal = state.refusal { return (Load(.failure(refusal)), false) }
            if let found = state.find(name) { return (Load(.success(found)), false) }
            if let load = state.loads[name] { return (load, false) }
            let load = Load()
            state.loads[name] = load
            state.loadingThreads += 1
            return (load, true)
        }
        return try (isNew ? run(load, name) : state.wait { _ in load.outcome }).get()
    }

    /// Returns the key if it is in a file, or nil for a key of the key command.
    func read(_ name: KeyName) -> KeyMaterial? {
        // Ignore even a key already in memory from the command, so that the answer is independent of earlier opens.
        if isClosed || sources.asksCommand(for: name) { return nil }
        return find(name) ?? (try? sources.load(name))
    }

    /// The keys of `--key KID=FILE`, with names of nothing but the identifier.
    package var given: Set<KeyID> { sources.given }

    /// Reads the given keys, because a fragment can need one that no open did. `missing` returns the failures.
    package func loadGiven() { for id in given { _ = try? fetch(.given(id)) } }

    /// Maximum number of keys read by `missing`.
    private static let maximumTries = 4096

    /// Tries to read all keys from files, also the given ones, without the key command. Returns each failure once.
    func missing(_ names: Set<KeyName>) -> [String] {
        let files = KeySources(root: sources.root, uriFiles: sources.uriFiles)
        var reasons: Set<String> = []
        func attempt(_ body: () throws(ViewError) -> KeyMaterial) {
            do throws(ViewError) { _ = try body() } catch .noKey(let reason) {
                reasons.insert(reason)
            } catch {
                // Ignore any other failure, because it may pass before the key is needed.
            }
        }
        let names = Array(names.prefix(Self.maximumTries)) + given.map(KeyName.given)
        for name in names where !sources.asksCommand(for: name) {
            attempt { () throws(ViewError) in try files.load(name) }
        }
        // Accept any cipher for the key of a URI that playlists do not name.
        for file in Set(files.uriFiles.values).subtracting(names.compactMap(files.givenFile)) {
            attempt { () throws(ViewError) in try KeyFile.read(file, cipher: nil) }
        }
        return reasons.sorted()
    }

    private func run(_ load: Load, _ name: KeyName) -> Result<KeyMaterial, ViewError> {
        // Take the stamp before the key, so that the next open notices a change in between.
        let stamp = sources.stamp(of: name)
        var loaded: Result<KeyMaterial, ViewError>? = Result { () throws(ViewError) in try sources.load(name) }
        linux_scrub_thread()
        return state.update { state in
            state.loadingThreads -= 1
            // `forget` or `stop` has ended the load: release the key, which wipes it, before `waitForLoads` returns.
            guard load.outcome == nil, let result = loaded.take() else {
                loaded = nil
                return load.outcome ?? .failure(.store(.locked))
            }
            load.outcome = result
            state.loads[name] = nil
            if case .success(let material) = result { state.cache.insert(material, stamp, for: name) }
            return result
        }
    }

    /// Records that these keys have opened a file.
    package func prove(_ names: [KeyName]) {
        if names.isEmpty { return }
        state.access { state in
            for name in names where name.isProvable { state.cache.prove(name) }
        }
    }

    /// Removes keys after a failed open, so that the next fetch finds a corrected key. Keeps keys that have opened
    /// another file, and keys that a fetch would not change.
    package func dropUnproven(_ names: [KeyName]) {
        state.access { state in
            for name in names where name.mayChange { state.cache.removeUnproven(name) }
        }
    }

    /// Fetches keys in the background, in order, four at a time. Calls `completion` for each, except for keys waiting
    /// at a `forget`, and after `stop`. Returns how many names the bounded queue has accepted.
    @discardableResult
    package func prefetch(_ names: [KeyName], completion: @escaping Completion) -> Int {
        state.update { state in
            guard state.refusal == nil else { return 0 }
            let accepted = names.prefix(Self.queueLimit - state.queue.count)
            state.queue += accepted.map { ($0, completion) }
            for _ in 0..<min(Self.threadCount - state.threads.count, accepted.count) {
                // Continue with fewer threads. Without any, keys are fetched when files are opened.
                guard let thread = try? BackgroundThread({ [self] in work() }) else { break }
                state.threads.append(thread)
            }
            return accepted.count
        }
    }

    private func work() {
        while let (name, completion) = state.next({ $0.nextRequest() }) {
            let outcome: Result<KeyMaterial, ViewError> = Result { () throws(ViewError) in try fetch(name) }
            guard state.update({ $0.refusal }) == nil else { continue }
            completion(name, outcome)
        }
    }

    /// Closes the store for a lock: releases all keys, which wipes them, ends key commands, and fails waiting fetches.
    /// A fetch in progress releases its key at its end. See `waitForLoads`.
    package func forget() { close(.store(.locked)) }

    /// Waits until all fetches have ended. Has no timeout if the file system of a key file does not answer.
    package func waitForLoads() { state.wait { $0.loadingThreads == 0 ? () : nil } }

    /// Opens the store again, after an unlock.
    package func reopen(shared: KeyMaterial?) {
        state.update { state in
            if state.isStopped { return }
            sources.command?.resume()
            state.refusal = nil
            state.shared = shared
        }
    }

    /// Closes the store for an unmount: like `forget`, but final. Joins the threads. Must be called once.
    package func stop() {
        close(.noKey("the view is being unmounted"), isStopped: true)
        for thread in state.update({ $0.threads }) { thread.join() }
        state.update { $0.threads = [] }
    }

    private func close(_ refusal: ViewError, isStopped: Bool = false) {
        state.update { state in
            if state.isStopped { return }
            state.isStopped = isStopped
            state.refusal = refusal
            state.shared = nil
            state.cache.removeAll()
            for load in state.loads.values { load.outcome = .failure(refusal) }
            state.loads = [:]
            state.queue = []
        }
        sources.command?.cancelAll()
    }
}

/// A bounded number of keys by name. Evicts the least recently used ones. One thread at a time.
struct KeyCache {
    private struct Entry {
        let material: KeyMaterial
        /// The stamp of the key's file in the source.
        let stamp: FileStamp?
        var lastUse: UInt64
        /// True if the key has opened a file. Another file that it cannot open is then damaged.
        var isProven = false
    }

    private let capacity: Int
    private var entries: [KeyName: Entry] = [:]
    private var clock: UInt64 = 0

    init(capacity: Int) { self.capacity = capacity }

    mutating func find(_ name: KeyName) -> KeyMaterial? {
        clock += 1
        let now = clock
        return { entry in
            entry?.lastUse = now
            return entry?.material
        }(&entries[name])
    }

    /// - Parameter stamp: the stamp of the key's file in the source, if it has one.
    mutating func insert(_ material: KeyMaterial, _ stamp: FileStamp? = nil, for name: KeyName) {
        if entries.count >= capacity, entries[name] == nil { shrink() }
        clock += 1
        entries[name] = Entry(material: material, stamp: stamp, lastUse: clock)
    }

    func stamp(of name: KeyName) -> FileStamp? { entries[name]?.stamp }

    mutating func remove(_ name: KeyName) { entries[name] = nil }

    /// Evicts the older half at once. A search for the oldest at each insert would cost more than fetching a key again.
    private mutating func shrink() {
        let uses = entries.values.map(\.lastUse).sorted()
        let median = uses[uses.count / 2]
        entries = entries.filter { $0.value.lastUse > median }
    }

    mutating func prove(_ name: KeyName) { entries[name]?.isProven = true }

    mutating func removeUnproven(_ name: KeyName) {
        if entries[name]?.isProven == false { entries[name] = nil }
    }

    mutating func removeAll() { entries.removeAll() }
}
