internal import CLinux
package import LinuxSystem
internal import Synchronization

internal import func Glibc.free
internal import func Glibc.malloc
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
    /// The most pieces of a request in order.
    package static let mostInOrder = 16

    let phase = Atomic(Phase.idle)
    /// The number of large requests. With several, each core has one.
    private let running = Atomic(0)
    private let offered = Mutex<PieceRun?>(nil)
    /// The buffers of pieces in order. Only the worker that has claimed the helper, and the helper, use them.
    private let memory = Mutex(PieceMemory())
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
    ///   - wake: posted when there is work. The thread that waits for it calls `serve`.
    ///   - cores: checked before each offer. Without an idle core, the helper would delay other threads.
    package init(wake: Semaphore, cores: IdleCores = IdleCores()) { (self.wake, self.cores) = (wake, cores) }

    /// Registers the calling thread as the one that calls `serve`, until it calls `detach`.
    package func attach() { thread.withLock { $0 = (linux_thread(), nil) } }

    package func detach() { thread.withLock { $0 = nil } }

    /// Lets the helper run on any core until the next request, for other work than requests.
    package func useAllCores() { keepOff(nil) }

    /// Does all pieces of a request, on this thread and on the helper's if it is free, in any order.
    /// - Parameters:
    ///   - count: the number of pieces. Each thread takes the first free one.
    ///   - work: called for several pieces at the same time.
    /// - Returns: the number of pieces before the first failed one, and its error.
    package func share<Workspace: WorkerBuffers>(
        _ count: Int, _ workspace: Workspace,
        _ work: @escaping @Sendable (Int, Workspace) throws(StoreError) -> Void
    ) -> (done: Int, error: StoreError?) {
        let run = PieceRun(count) { index, workspace throws(StoreError) in
            try work(index, unsafeDowncast(workspace, to: Workspace.self))
        }
        claimingHelper { isClaimed in
            if isClaimed { offer(run) }
            while run.doNext(workspace) {}
            if isClaimed { end() }
        }
        return run.result
    }

    /// Prepares all pieces of a request, on this thread and on the helper's if it is free. Finishes them in order, on
    /// this thread. The helper never waits, and this thread only for a piece that the helper has begun.
    /// - Parameters:
    ///   - count: the number of pieces, at most `mostInOrder`.
    ///   - buffer: in which a piece is prepared, if the helper is not free. Otherwise each has one of the same size.
    ///   - prepare: called for several pieces at the same time.
    ///   - finish: called for one piece after the other.
    /// - Returns: the number of pieces before the first failed one, and its error.
    package func shareInOrder<Workspace: WorkerBuffers>(
        _ count: Int, in buffer: UnsafeMutableRawBufferPointer, _ workspace: Workspace,
        prepare: @escaping @Sendable (Int, UnsafeMutableRawBufferPointer, Workspace) throws(StoreError) -> Void,
        finish: (Int, UnsafeMutableRawBufferPointer) throws(StoreError) -> Void
    ) -> (done: Int, error: StoreError?) {
        precondition(count <= Self.mostInOrder, "too many pieces")
        var done = 0
        var error: StoreError?
        claimingHelper { isClaimed in
            let size = buffer.count
            let shared = isClaimed ? memory.withLock { $0.resized(to: count * size) } : nil
            nonisolated(unsafe) let buffers = (own: buffer, shared: shared)
            @Sendable func bufferOfPiece(_ index: Int) -> UnsafeMutableRawBufferPointer {
                buffers.shared?.slice((index * size)..<((index + 1) * size)) ?? buffers.own
            }
            let run = PieceRun(count) { index, workspace throws(StoreError) in
                try prepare(index, bufferOfPiece(index), unsafeDowncast(workspace, to: Workspace.self))
            }
            var isOffered = shared != nil
            if isOffered { offer(run) }
            do throws(StoreError) {
                while done < count {
                    if try run.isDone(done) {
                        try finish(done, bufferOfPiece(done))
                        done += 1
                    } else if !run.doNext(workspace), isOffered {
                        // The helper has this piece, and it is its last one.
                        end()
                        isOffered = false
                    }
                }
            } catch let failure { error = failure }
            run.stop()
            if isOffered { end() }
        }
        return (done, error)
    }

    /// Calls `body` with true if this request is the only large one, a core is idle and the helper is free.
    private func claimingHelper(_ body: (Bool) -> Void) {
        let others = running.add(1, ordering: .relaxed).oldValue
        defer { running.subtract(1, ordering: .relaxed) }
        guard others == 0, claim() else { return body(false) }
        defer { phase.store(.idle, ordering: .releasing) }
        body(true)
    }

    private func claim() -> Bool {
        if late.load(ordering: .relaxed) < 0 {
            late.add(1, ordering: .relaxed)
            return false
        }
        return cores.isThereOne
            && phase.compareExchange(expected: .idle, desired: .claimed, ordering: .acquiring).exchanged
    }

    /// Offers a run to the claimed helper.
    private func offer(_ run: PieceRun) {
        offered.withLock { $0 = run }
        keepOff(linux_this_core())
        phase.store(.offered, ordering: .releasing)
        wake.post()
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
        if let run = offered.withLock({ $0 }) {
            while run.doNext(workspace) {}
        }
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
    private let count: Int
    private let work: @Sendable (Int, any WorkerBuffers) throws(StoreError) -> Void
    /// The first free piece.
    private let next = Atomic(0)
    /// A bit for each of the first pieces that is done.
    private let done = Atomic<UInt64>(0)
    /// The first failed piece, and its error.
    private let failure = Mutex<(index: Int, error: StoreError)?>(nil)
    /// The index of the failed piece. `count` while there is none.
    private let failedAt: Atomic<Int>

    init(_ count: Int, _ work: @escaping @Sendable (Int, any WorkerBuffers) throws(StoreError) -> Void) {
        self.count = count
        self.work = work
        failedAt = Atomic(count)
    }

    var result: (done: Int, error: StoreError?) {
        failure.withLock { failure in (failure?.index ?? count, failure?.error) }
    }

    /// Returns true if a piece is done.
    /// - Throws: its error, if it has failed.
    func isDone(_ index: Int) throws(StoreError) -> Bool {
        if done.load(ordering: .acquiring) & 1 << UInt64(index) != 0 { return true }
        if failedAt.load(ordering: .acquiring) == index, let error = result.error { throw error }
        return false
    }

    /// Does the first free piece. Returns false if there is none.
    func doNext(_ workspace: any WorkerBuffers) -> Bool {
        let index = next.add(1, ordering: .relaxed).oldValue
        guard index < failedAt.load(ordering: .acquiring) else { return false }
        do throws(StoreError) {
            try work(index, workspace)
            if index < UInt64.bitWidth { done.bitwiseOr(1 << UInt64(index), ordering: .releasing) }
        } catch {
            failure.withLock { failure in
                if index >= failure?.index ?? count { return }
                failure = (index, error)
                failedAt.store(index, ordering: .releasing)
            }
        }
        return true
    }

    /// Leaves the free pieces.
    func stop() { next.store(count, ordering: .relaxed) }
}

/// Memory for the buffers of pieces, kept for the next request. It has ciphertext only.
private struct PieceMemory: ~Copyable {
    private var buffer = UnsafeMutableRawBufferPointer(start: nil, count: 0)

    /// Returns the memory with at least this many bytes. Nil if there is not enough.
    mutating func resized(to size: Int) -> UnsafeMutableRawBufferPointer? {
        if buffer.count < size {
            free(buffer.baseAddress)
            let start = malloc(size)
            buffer = UnsafeMutableRawBufferPointer(start: start, count: start == nil ? 0 : size)
            if start == nil { return nil }
        }
        return buffer
    }

    deinit { free(buffer.baseAddress) }
}
