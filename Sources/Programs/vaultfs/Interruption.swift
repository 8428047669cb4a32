internal import Daemon
internal import FuseSession
internal import Synchronization

/// The arrival of a signal that ends the process, for work that must stop in good order. A second one ends it at once.
/// Any thread.
final class Interruption: Sendable {
    private let number = Atomic<Int32>(0)

    /// - Parameter onArrival: called once, on another thread.
    init(_ onArrival: @escaping @Sendable () -> Void = {}) throws(MountError) {
        Signals.block(Signals.ending)
        try Signals.onArrival(of: Signals.ending) { [self] number in
            guard self.number.exchange(number, ordering: .sequentiallyConsistent) == 0 else { Signals.end(by: number) }
            onArrival()
        }
    }

    /// The signal that has arrived, if any.
    var signal: Int32? {
        let number = number.load(ordering: .sequentiallyConsistent)
        return number == 0 ? nil : number
    }
}
