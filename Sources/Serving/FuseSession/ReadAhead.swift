internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// The open files whose next data a thread decrypts ahead of their programs' reads. Any thread.
final class ReadAhead: Sendable {
    /// The work for one file. `step` decrypts one piece ahead, and returns false if there is nothing to do.
    struct Work {
        let file: any OpenFile
        let step: @Sendable (any WorkerBuffers) -> Bool
    }

    private struct State {
        var waiting: [Work] = []
        /// The file whose work is running.
        var running: (any OpenFile)?
        /// True while there is a thread. Otherwise files must not be kept open.
        var isServed = false
    }

    /// The most waiting files. With more of them, the thread would come too late for all.
    private static let mostWaiting = 8

    private let state = Mutex(State())
    private let wake: Semaphore

    /// - Parameter wake: posted when there is work. The thread that waits for it calls `next`.
    init(wake: Semaphore) { self.wake = wake }

    /// Adds work for a file, unless it already has some, or too many files have.
    func add(_ work: Work) {
        let isAdded = state.withLock { state in
            guard state.isServed, state.waiting.count < Self.mostWaiting, state.running !== work.file,
                !state.waiting.contains(where: { $0.file === work.file })
            else { return false }
            state.waiting.append(work)
            return true
        }
        if isAdded { wake.post() }
    }

    /// Returns the work that has waited longest. Nil if there is none.
    func next() -> Work? {
        state.withLock { state in
            if state.waiting.isEmpty { return nil }
            let work = state.waiting.removeFirst()
            state.running = work.file
            return work
        }
    }

    func finish() { state.withLock { $0.running = nil } }

    /// Records the beginning or the end of the thread.
    func serve(_ isServed: Bool) { state.withLock { $0 = State(isServed: isServed) } }
}
