internal import Synchronization

/// A function set by a part of the program that wants to be notified. At first it is missing. Any thread.
///
/// The function is a property of a struct, because a `Mutex` must not hold it alone: `withLock` passes the value
/// through a generic parameter, for which Swift wraps a function, and wraps it again when putting it back. It would
/// grow with each use, until a call of it overflows the stack.
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

    /// Calls the function, if there is one, outside of the lock.
    package func notify(_ argument: Argument) { body.withLock { $0 }?.call(argument) }
}

extension Observer<Void> {
    /// Does the same without an argument.
    package func notify() { notify(()) }
}
