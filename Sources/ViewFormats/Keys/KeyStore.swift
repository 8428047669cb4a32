internal import CLinux
internal import FileSystem
internal import LinuxSystem

/// The keys of a view, by name: those in memory, and those still to be had from `KeySources`. Any thread.
///
/// What was fetched is kept, a bounded number; a failure is not: the next fetch tries again.
package final class KeyStore: Sendable {
    /// Told how a key that was fetched ahead came out; on one of the store's own threads, and not to call `stop`.
    package typealias Completion = @Sendable (KeyName, Result<KeyMaterial, ViewError>) -> Void

    private static let threadCount = 4
    /// How many names may wait to be fetched ahead.
    package static let queueLimit = 65_536

    private let sources: KeySources
    private let state: Monitor<State>

    /// - Parameters:
    ///   - shared: the view's one key, if it has one.
    ///   - capacity: how many keys are kept.
    package init(_ sources: KeySources, shared: KeyMaterial? = nil, capacity: Int = 65_536) {
        self.sources = sources
        state = Monitor(State(shared: shared, cache: KeyCache(capacity: capacity)))
    }

    /// Whether it gives no keys, after `forget` or `stop`.
    package var isClosed: Bool { state.access { $0.refusal != nil } }

    /// The key if it is in memory; does not wait.
    package func find(_ name: KeyName) -> KeyMaterial? {
        state.access { $0.find(name) }
    }

    /// The key from memory, or from where it is to be had: blocks, for at most the key command's limit and a bit.
    /// - Throws: `noKey` with what was tried; `.store(.locked)` after `forget`, at once also to those who wait.
    package func fetch(_ name: KeyName) throws(ViewError) -> KeyMaterial {
        enum Step {
            case done(Result<KeyMaterial, ViewError>)
            case join(Load)
            case start(Load)
        }
        let step = state.wait { state -> Step? in
            if let refusal = state.refusal { return .done(.failure(refusal)) }
            if let found = state.find(name) { return .done(.success(found)) }
            if let load = state.loads[name] { return .join(load) }
            let load = Load()
            state.loads[name] = load
            state.loadingThreads += 1
            return .start(load)
        }
        switch step {
        case .done(let outcome): return try outcome.get()
        case .join(let load): return try state.wait { _ in load.outcome }.get()
        case .start(let load): return try run(load, name).get()
        }
    }

    private func run(_ load: Load, _ name: KeyName) -> Result<KeyMaterial, ViewError> {
        var loaded: Result<KeyMaterial, ViewError>? = Result { () throws(ViewError) in try sources.load(name) }
        linux_scrub_thread()
        return state.update { state in
            state.loadingThreads -= 1
            // Abandoned by `forget` or `stop`: what came is let go, and with that wiped, before `forget` returns.
            guard load.outcome == nil, let result = loaded.take() else {
                loaded = nil
                return load.outcome ?? .failure(.store(.locked))
            }
            load.outcome = result
            state.loads[name] = nil
            if case .success(let material) = result { state.cache.insert(material, for: name) }
            return result
        }
    }

    /// These keys have opened a file.
    package func prove(_ names: [KeyName]) {
        if names.isEmpty { return }
        state.access { state in
            for name in names { state.cache.prove(name) }
        }
    }

    /// Lets keys go that did not open a file: they may be put right, and the next fetch asks again. Those that have opened
    /// another stay, and what is given at mount or derived from that: it would come out the same.
    package func dropUnproven(_ names: [KeyName]) {
        state.access { state in
            for name in names where name.mayChange { state.cache.removeUnproven(name) }
        }
    }

    /// Fetches keys in the background, in order, four at a time; `completion` is called for each, but not for those that
    /// wait at a `forget`, and not after `stop`. Returns how many of the names were taken: the queue is bounded.
    @discardableResult
    package func prefetch(_ names: [KeyName], completion: @escaping Completion) -> Int {
        state.update { state in
            guard state.refusal == nil else { return 0 }
            let taken = names.prefix(Self.queueLimit - (state.queue.count - state.queueStart))
            state.queue += taken.map { Request(name: $0, completion: completion) }
            for _ in 0..<min(Self.threadCount - state.threads.count, taken.count) {
                // Fewer threads do it too; and without any, keys are fetched when files are opened.
                guard let thread = try? BackgroundThread({ [self] in work() }) else { break }
                state.threads.append(thread)
            }
            return taken.count
        }
    }

    private func work() {
        while let request = state.wait(for: { $0.nextRequest() }) {
            let outcome: Result<KeyMaterial, ViewError> = Result { () throws(ViewError) in try fetch(request.name) }
            guard state.update({ $0.refusal }) == nil else { continue }
            request.completion(request.name, outcome)
        }
    }

    /// Lets all keys in memory go, which wipes them, ends key commands, and fails whoever waits for a key: for a lock.
    /// A key that is being derived or read meanwhile is let go as soon as it is there: see `waitForLoads`.
    package func forget() {
        close(.store(.locked))
        sources.command?.cancelAll()
    }

    /// Returns when no key is being derived or read: for ever, where a key file's store does not answer.
    package func waitForLoads() {
        state.wait { $0.loadingThreads == 0 ? () : nil }
    }

    /// Gives keys again, after an unlock.
    package func reopen(shared: KeyMaterial?) {
        state.update { state in
            if state.isStopped { return }
            sources.command?.resume()
            state.refusal = nil
            state.shared = shared
        }
    }

    /// As `forget`, for good: at unmount. Ends and joins the threads. Once, by the owner.
    package func stop() {
        close(.noKey("the view is being unmounted"), isStopped: true)
        sources.command?.cancelAll()
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
            state.queueStart = 0
        }
    }
}
