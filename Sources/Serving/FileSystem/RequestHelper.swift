internal import CLinux
package import LinuxSystem
internal import Synchronization

internal import func Glibc.sched_yield

/// Lets a second thread do pieces of a large request beside its worker. Helps one request at a time. A worker waits
/// only for a helper that has begun. Any thread may call `share`, and one thread, the helper, calls `serve`.
package final class RequestHelper: Sendable {
    /// The state of the offer. A worker claims it, and only that worker makes it idle again.
    enum Phase: Int, AtomicRepresentable {
        case idle, claimed, offered, taken
    }

    /// The smallest shared request, in bytes, because waking a helper takes 50 µs. At 256 KiB, as the kernel reads
    /// ahead for cat(1), sharing gained nothing and cost cat a tenth.
    package static let smallestShared = 512 << 10

    /// The requests in a row for which the helper came too late, before the next `pause` requests are not offered: the
    /// process may be barred from the idle core.
    private static let mostLate = 3
    private static let pause = 64
    /// The checks, some 100 µs in all, for the end of the helper's last piece before a worker sleeps. Waking it would
    /// take 30 µs.
    private static let mostLooks = 64

    let phase = Atomic(Phase.idle)
    /// The number of large requests. With several, each core has one.
    private let running = Atomic(0)
    private let offered = Mutex<PieceRun?>(nil)
    private let wake: Semaphore
    private let cores: IdleCores
    /// The helper's thread, from `attach` to `detach`, and the core on which it may not run.
    private let thread = Mutex<(id: Int32, closedCore: Int32?)?>(nil)
    private let ended = Semaphore()
    /// The requests in a row for which the helper came too late. While it is below 0, requests are not offered.
    private let late = Atomic(0)
    /// The number of requests of which the helper has done a part.
    let helped = Atomic<UInt64>(0)

    /// - Parameters:
    /// - wake: posted when there is work. The thread that waits for it calls `serve`.
    /// - cores: checked before each offer. Without an idle core, the helper would delay other threads.
    package init(wake: Semaphore, cores: IdleCores = IdleCores()) { (self.wake, self.cores) = (wake, cores) }

    /// Registers the calling thread as the one that calls `serve`, until it calls `detach`.
    package func attach() { thread.withLock { $0 = (linux_thread(), nil) } }

    package func detach() { thread.withLock { $0 = nil } }

    /// Lets the helper run on any core until the next request, for other work than requests.
    package func useAllCores() { keepOff(nil) }

    /// Does all pieces of a request, on this thread and on the helper's if it is free.
    /// - Parameters:
    /// - count: the number of pieces. Each thread takes the first free one.
    /// - prepare: called for several pieces at the same time.
    /// - finish: called for one piece after the other, in order, on the thread that has prepared the piece. If it is
    ///   nil, the order does not matter.
    /// - Returns: the number of pieces before the first failed one, and its error.
    package func share<Workspace: WorkerBuffers>(
        _ count: Int, _ workspace: Workspace,
        prepare: @escaping @Sendable (Int, Workspace) throws(StoreError) -> Void,
        finish: (@Sendable (Int, Workspace) throws(StoreError) -> Void)? = nil
    ) -> (done: Int, error: StoreError?) {
        let run = PieceRun(count, isOrdered: finish != nil) { index, workspace throws(StoreError) in
            try prepare(index, unsafeDowncast(workspace, to: Workspace.self))
        } finish: { index, workspace throws(StoreError) in
            try finish?(index, unsafeDowncast(workspace, to: Workspace.self))
        }
        let others = running.add(1, ordering: .relaxed).oldValue
        defer { running.subtract(1, ordering: .relaxed) }
        let isOffered = others == 0 && offer(run)
        run.work(workspace)
        if isOffered { end() }
        return run.result
    }

    private func offer(_ run: PieceRun) -> Bool {
        if late.load(ordering: .relaxed) < 0 {
            late.add(1, ordering: .relaxed)
            return false
        }
        guard cores.isThereOne,
            phase.compareExchange(expected: .idle, desired: .claimed, ordering: .acquiring).exchanged
        else { return false }
        offered.withLock { $0 = run }
        keepOff(linux_this_core())
        phase.store(.offered, ordering: .releasing)
        wake.post()
        return true
    }

    /// Withdraws the offer, or waits until the helper has ended its last piece.
    private func end() {
        if phase.compareExchange(expected: .offered, desired: .claimed, ordering: .acquiringAndReleasing).exchanged {
            if late.add(1, ordering: .relaxed).newValue >= Self.mostLate { late.store(-Self.pause, ordering: .relaxed) }
        } else {
            awaitHelper()
            late.store(0, ordering: .relaxed)
            helped.add(1, ordering: .relaxed)
        }
        offered.withLock { $0 = nil }
        phase.store(.idle, ordering: .releasing)
    }

    /// Waits until the helper has ended its last piece.
    private func awaitHelper() {
        for _ in 0..<Self.mostLooks {
            if ended.tryWait() { return }
            sched_yield()
        }
        // A signal may interrupt the wait.
        while !ended.wait() {}
    }

    /// Keeps the helper off a worker's core, where a kernel may prefer to wake it if it ran there last, or lets it run
    /// on all cores. Workers seldom change cores, so system calls are rare.
    private func keepOff(_ core: Int32?) {
        thread.withLock { thread in
            guard let id = thread?.id, thread?.closedCore != core else { return }
            // A failure costs only time.
            _ = if let core { linux_stay_off_core(id, core) } else { linux_use_all_cores(id) }
            thread?.closedCore = core
        }
    }

    /// Does pieces of the offered request, if there is one.
    package func serve(_ workspace: any WorkerBuffers) {
        guard phase.compareExchange(expected: .offered, desired: .taken, ordering: .acquiringAndReleasing).exchanged
        else { return }
        offered.withLock { $0 }?.work(workspace)
        ended.post()
    }
}

/// Calls `body` with a helper on a thread of its own, for programs that serve no requests. Without enough memory or a
/// thread, the helper is nil, and `body` works alone.
/// - Parameters:
///   - cores: as for `RequestHelper`.
///   - makeWorkspace: called once, on this thread.
/// - Throws: the error of `body`.
package func withRequestHelper<Result, Failure: Error>(
    cores: IdleCores = IdleCores(), _ makeWorkspace: () throws(StoreError) -> any WorkerBuffers,
    _ body: (RequestHelper?) throws(Failure) -> Result
) throws(Failure) -> Result {
    let wake = Semaphore()
    let helper = RequestHelper(wake: wake, cores: cores)
    let isRunning = Monitor(true)
    let serving: BackgroundThread
    do throws(StoreError) {
        // The workspace is used only by the new thread.
        nonisolated(unsafe) let workspace = try makeWorkspace()
        serving = try BackgroundThread {
            helper.attach()
            defer { helper.detach() }
            while isRunning.access({ $0 }) {
                if wake.wait() { helper.serve(workspace) }
            }
        }
    } catch { return try body(nil) }
    defer {
        isRunning.update { $0 = false }
        wake.post()
        serving.join()
    }
    return try body(helper)
}

/// The pieces of one request. Any thread.
private final class PieceRun: Sendable {
    typealias Step = @Sendable (Int, any WorkerBuffers) throws(StoreError) -> Void

    private let count: Int
    private let isOrdered: Bool
    private let prepare: Step
    private let finish: Step
    /// The first free piece.
    private let next = Atomic(0)
    /// The piece that may be finished.
    private let turn = Atomic(0)
    /// The first failed piece, and its error.
    private let failure = Mutex<(index: Int, error: StoreError)?>(nil)
    /// The index of the failed piece. `count` while there is none.
    private let failedAt: Atomic<Int>

    init(_ count: Int, isOrdered: Bool, prepare: @escaping Step, finish: @escaping Step) {
        (self.count, self.isOrdered, self.prepare, self.finish) = (count, isOrdered, prepare, finish)
        failedAt = Atomic(count)
    }

    var result: (done: Int, error: StoreError?) {
        failure.withLock { failure in (failure?.index ?? count, failure?.error) }
    }

    func work(_ workspace: any WorkerBuffers) {
        while true {
            let index = next.add(1, ordering: .relaxed).oldValue
            guard index < failedAt.load(ordering: .acquiring) else { return }
            do throws(StoreError) {
                try prepare(index, workspace)
                guard isOrdered else { continue }
                guard awaitTurn(index) else { return }
                try finish(index, workspace)
                turn.store(index + 1, ordering: .releasing)
            } catch {
                failure.withLock { failure in
                    if index >= failure?.index ?? count { return }
                    failure = (index, error)
                    failedAt.store(index, ordering: .releasing)
                }
            }
        }
    }

    /// Waits while the other thread finishes the piece before, some microseconds. Returns false if that has failed.
    private func awaitTurn(_ index: Int) -> Bool {
        while turn.load(ordering: .acquiring) != index {
            if failedAt.load(ordering: .acquiring) < index { return false }
            sched_yield()
        }
        return true
    }
}
