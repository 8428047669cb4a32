internal import CLinux
internal import FileSystem
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import ViewFormats

/// Opens that wait for keys, on threads of their own: the workers go on. Any thread.
final class DeferredOpens: Sendable {
    /// Opens, or throws: with the failure where the keys could not be had; nil where keys have gone again meanwhile.
    typealias Opening = @Sendable (ViewError?) throws(StoreError) -> ViewHandle?

    private struct Job: Sendable {
        var names: [KeyName]
        var outcome: OpenOutcome<ViewHandle>
        var open: Opening
    }

    private struct State {
        var jobs: [Job] = []
        var idle = 0
        var threads: [BackgroundThread] = []
        var isEnding = false
    }

    /// How often keys may go again before they are used.
    private static let patience = 3

    private let gate: LockGate
    private let keys: KeyStore
    private let mostThreads: Int
    private let state = Monitor(State())

    /// - Parameter mostThreads: how many opens may be waited for at a time.
    init(gate: LockGate, keys: KeyStore, mostThreads: Int) {
        self.gate = gate
        self.keys = keys
        self.mostThreads = mostThreads
    }

    func add(_ names: [KeyName], _ outcome: @escaping OpenOutcome<ViewHandle>, open: @escaping Opening) {
        let isTaken = state.update { state in
            if state.isEnding { return false }
            if state.idle <= state.jobs.count, state.threads.count < mostThreads,
                let thread = try? BackgroundThread({ [self] in work() })
            {
                state.threads.append(thread)
            }
            if state.threads.isEmpty { return false }
            state.jobs.append(Job(names: names, outcome: outcome, open: open))
            return true
        }
        if !isTaken { outcome(.failure(.system(.resourceTemporarilyUnavailable))) }
    }

    /// Fails what waits, and returns when all has been answered.
    func end() {
        state.update { $0.isEnding = true }
        // Whoever fetches a key is told that there is none.
        keys.stop()
        let threads = state.update { state in
            defer { state.threads = [] }
            return state.threads
        }
        for thread in threads { thread.join() }
    }

    private func work() {
        let inFlight = gate.register()
        defer { gate.unregister(inFlight) }
        while let job = next() { job.outcome(Result { () throws(StoreError) in try serve(job, inFlight) }) }
    }

    private func next() -> Job? {
        state.update { $0.idle += 1 }
        return state.wait { state -> Job?? in
            if state.jobs.isEmpty && !state.isEnding { return nil }
            // With the job: who counted on a thread that has one already would wait for it.
            state.idle -= 1
            return .some(state.jobs.isEmpty ? nil : state.jobs.removeFirst())
        }
    }

    private func serve(_ job: Job, _ inFlight: LockGate.InFlight) throws(StoreError) -> ViewHandle {
        for _ in 0..<Self.patience {
            var failure: ViewError?
            do throws(ViewError) {
                for name in job.names { _ = try keys.fetch(name) }
            } catch {
                failure = error
            }
            // A lock waits for whoever makes use of keys, not for who waits for them.
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
