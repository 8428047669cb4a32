internal import Synchronization

/// A function that somebody sets in order to be notified. Until then there is none. Any thread.
///
/// The function is a property of a struct, because a `Mutex` must not hold it alone: `withLock` passes the value through a
/// generic parameter, for which Swift wraps a function, and wraps it once more when it is put back. It would grow with each
/// use, until a call of it overflows the stack.
package final class Observer<Argument>: Sendable {
    private struct Body: Sendable {
        let call: @Sendable (Argument) -> Void
    }

    private let body = Mutex<Body?>(nil)

    package init() {}

    /// Replaces the function.
    package func set(_ call: @escaping @Sendable (Argument) -> Void) { body.withLock { $0 = Body(call: call) } }

    /// The current function, for callers that must call the same one several times.
    package var current: (@Sendable (Argument) -> Void)? { body.withLock { $0 }?.call }

    /// Calls the function, if there is one, without a lock.
    package func notify(_ argument: Argument) { body.withLock { $0 }?.call(argument) }
}

extension Observer<Void> {
    /// The same without an argument.
    package func notify() { notify(()) }
}
