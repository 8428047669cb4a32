internal import Synchronization

/// The stack that calls of one function, from one place, have in use. Tests compare it, because something that is called
/// often must not need more with each call.
package final class StackDepth: Sendable {
    private let first = Atomic<Int>(0)
    private let last = Atomic<Int>(0)

    package init() {}

    /// Called in the function.
    package func note() {
        var local = 0
        let address = withUnsafeMutablePointer(to: &local) { Int(bitPattern: $0) }
        _ = first.compareExchange(expected: 0, desired: address, ordering: .relaxed)
        last.store(address, ordering: .relaxed)
    }

    /// Bytes of the last call above those of the first.
    package var growth: Int { first.load(ordering: .relaxed) - last.load(ordering: .relaxed) }

    /// True if the function was called.
    package var isNoted: Bool { first.load(ordering: .relaxed) != 0 }
}
