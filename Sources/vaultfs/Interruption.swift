internal import Synchronization

/// The signals that end a process, noticed by who works; a second one ends it at once. Any thread.
final class Interruption: Sendable {
    private let number = Atomic<Int32>(0)

    /// - Parameter onArrival: called by another thread, once.
    init(_ onArrival: @escaping @Sendable () -> Void) throws(CommandFailure) {
        Signals.block(Signals.ending)
        try Signals.onArrival(of: Signals.ending) { [self] number in
            guard self.number.exchange(number, ordering: .sequentiallyConsistent) == 0 else { Signals.end(by: number) }
            onArrival()
        }
    }

    /// The one that arrived.
    var signal: Int32? {
        let number = number.load(ordering: .sequentiallyConsistent)
        return number == 0 ? nil : number
    }
}
