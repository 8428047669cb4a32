internal import Glibc

/// Runs `body`, which may wait for a store that does not answer, on a thread of its own; nil where it has not ended in time:
/// then it goes on by itself, and what it returns is dropped. Any thread.
package func withinTime<Result: Sendable>(
    milliseconds: Int, _ body: @escaping @Sendable () -> Result
) -> Result? {
    let outcome = Monitor<Result?>(nil)
    guard
        let thread = try? BackgroundThread({
            let result = body()
            outcome.update { $0 = result }
        })
    else {
        return body()
    }
    thread.detach()
    return outcome.wait(until: monotonicDeadline(inMilliseconds: milliseconds)) { $0 }
}
