internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import ViewFormats

/// Opens that wait for keys, on threads of their own, so that the workers stay free for other requests, for interrupts
/// and for a lock. Any thread.
final class DeferredOpens: Sendable {
    /// Opens the file, with the failure if the keys could not be fetched. Returns nil if keys were dropped meanwhile.
    typealias Opening = @Sendable (ViewError?) throws(StoreError) -> ViewHandle?

    private struct Job: Sendable {
        var names: [KeyName]
        var outcome: OpenOutcome<ViewHandle>
        var open: Opening
    }

    private struct State {
        var jobs: [Job] = []
        /// Threads that serve jobs. Each ends when there is none left.
        var threads = 0
        var isEnding = false
    }

    /// Number of times that keys may be dropped before they are used.
    private static let maximumRetries = 3

    private let gate: LockGate
    private let keys: KeyStore
    private let mostThreads: Int
    private let state = Monitor(State())

    /// - Parameter mostThreads: the number of opens that may wait at a time. More are queued.
    init(gate: LockGate, keys: KeyStore, mostThreads: Int) {
        (self.gate, self.keys, self.mostThreads) = (gate, keys, mostThreads)
    }

    func add(_ names: [KeyName], _ outcome: @escaping OpenOutcome<ViewHandle>, open: @escaping Opening) {
        let isTaken = state.update { state in
            if state.isEnding { return false }
            if state.threads < mostThreads, let thread = try? BackgroundThread({ [self] in work() }) {
                thread.detach()
                state.threads += 1
            }
            if state.threads > 0 { state.jobs.append(Job(names: names, outcome: outcome, open: open)) }
            return state.threads > 0
        }
        if !isTaken { outcome(.failure(.system(.resourceTemporarilyUnavailable))) }
    }

    /// Fails the waiting opens. Returns when all have been answered.
    func end() {
        state.update { $0.isEnding = true }
        // Ends fetching a key with an error.
        keys.stop()
        state.wait { $0.threads == 0 ? () : nil }
    }

    private func work() {
        while let job = next() { job.outcome(Result { () throws(StoreError) in try serve(job) }) }
    }

    private func next() -> Job? {
        state.update { state in
            if !state.jobs.isEmpty { return state.jobs.removeFirst() }
            state.threads -= 1
            return nil
        }
    }

    private func serve(_ job: Job) throws(StoreError) -> ViewHandle {
        let inFlight = gate.register()
        defer { gate.unregister(inFlight) }
        for _ in 0..<Self.maximumRetries {
            var failure: ViewError?
            do throws(ViewError) { for name in job.names { _ = try keys.fetch(name) } } catch { failure = error }
            // A lock waits for threads that use keys, but not for threads that wait for keys.
            gate.enter(inFlight)
            defer {
                linux_scrub_thread()
                gate.leave(inFlight)
            }
            if let handle = try job.open(failure) { return handle }
        }
        throw .locked
    }
}
