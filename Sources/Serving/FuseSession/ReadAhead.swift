internal import FileSystem
internal import LinuxSystem
internal import Synchronization

/// The open files for which a thread decrypts ahead what their programs read next. Any thread.
final class ReadAhead: Sendable {
    /// Decrypts one piece of a file ahead. Returns false if there is nothing to do for it.
    struct Work {
        let file: any OpenFile
        let step: @Sendable (any WorkerBuffers) -> Bool
    }

    private struct State {
        var waiting: [Work] = []
        /// The file whose work is running.
        var running: (any OpenFile)?
        /// True while there is a thread. Without one, nothing may keep files open.
        var isServed = false
    }

    /// With more files than these, the thread would come too late for all of them.
    private static let mostWaiting = 8

    private let state = Mutex(State())
    private let wake: Semaphore

    /// - Parameter wake: posted when there is work. The thread that waits for it calls `next`.
    init(wake: Semaphore) { self.wake = wake }

    /// Adds work for a file, unless it has some already, or too many files have.
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

    /// The work that has waited longest. Nil if there is none.
    func next() -> Work? {
        state.withLock { state in
            if state.waiting.isEmpty { return nil }
            let work = state.waiting.removeFirst()
            state.running = work.file
            return work
        }
    }

    func finish() { state.withLock { $0.running = nil } }

    /// The thread begins, or ends.
    func serve(_ isServed: Bool) { state.withLock { $0 = State(isServed: isServed) } }
}
