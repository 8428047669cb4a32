internal import CFuse
internal import LinuxSystem

/// Delays the answers to reads that fail again and again.
///
/// The kernel retries a page fault of mlock(2), or of mmap(2) with MAP_POPULATE, for ever if its read fails.
/// `filemap_fault` of mm/filemap.c returns VM_FAULT_RETRY for every error, and `__mm_populate` of mm/gup.c starts again
/// (seen on 6.18: 50,000 requests a second). Only an unlock or SIGKILL ends the retries, whatever errno is returned.
/// With the delay they cost next to nothing. Any thread.
final class RepeatedRefusals: Sendable {
    /// The refused read of one thread.
    struct Read: Hashable {
        var thread: UInt32
        var node: UInt64
        var offset: Int64
    }

    private struct Refusal {
        var count: Int
        /// The time of the latest refusal, in milliseconds of CLOCK_MONOTONIC.
        var last: Int
    }

    private struct Answer {
        var request: fuse_req_t
        var errno: Int32
        /// The time of the answer.
        var due: ContinuousClock.Instant
    }

    private struct State {
        var refusals: [Read: Refusal] = [:]
        /// A lower bound of the refusals' times.
        var oldest = 0
        var answers: [Answer] = []
        var isStopping = false
    }

    /// The number of refusals of the same read answered at once, if each follows the last one within a second.
    private static let answeredAtOnce = 32
    private static let successionMilliseconds = 1000
    private static let delay = Duration.milliseconds(20)
    /// The most refused reads remembered. If all of them are running, each further one is delayed.
    static let memory = 4096

    private let state = Monitor(State())

    /// Adds a refused read. Returns true if its answer must be delayed.
    func isRepeated(_ read: Read, at now: Int = monotonicMilliseconds()) -> Bool {
        state.access { state in
            if let known = state.refusals[read], now - known.last <= Self.successionMilliseconds {
                state.refusals[read] = Refusal(count: known.count + 1, last: now)
                return known.count >= Self.answeredAtOnce
            }
            // Scan only if there may be something to remove.
            if state.refusals.count >= Self.memory, now - state.oldest > Self.successionMilliseconds {
                state.refusals = state.refusals.filter { now - $0.value.last <= Self.successionMilliseconds }
                state.oldest = state.refusals.values.map(\.last).min() ?? now
            }
            guard state.refusals.count < Self.memory else { return true }
            state.refusals[read] = Refusal(count: 1, last: now)
            return false
        }
    }

    /// Makes `run` answer the request with this error after the delay.
    func answerLater(_ request: fuse_req_t, _ errno: Int32) {
        let answer = Answer(request: request, errno: errno, due: .now + Self.delay)
        let isStopping = state.update { state in
            if !state.isStopping { state.answers.append(answer) }
            return state.isStopping
        }
        if isStopping { fuse_reply_err(request, errno) }
    }

    /// Makes `run` answer the remaining requests at once, and end.
    func stop() { state.update { $0.isStopping = true } }

    /// Sends the delayed answers, in order, until `stop`. Runs on a thread of its own.
    func run() {
        while let answer = state.next({ state in
            if !state.answers.isEmpty { return .item(state.answers.removeFirst()) }
            return state.isStopping ? .end : .wait
        }) {
            _ = state.wait(until: answer.due) { $0.isStopping ? () : nil }
            fuse_reply_err(answer.request, answer.errno)
        }
    }
}
