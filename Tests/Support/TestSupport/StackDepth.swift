internal import Synchronization

/// The stack used by calls of one function from one place. Tests compare it, because a frequent call must not need more
/// each time.
package final class StackDepth: Sendable {
    private let first = Atomic<Int>(0)
    private let last = Atomic<Int>(0)

    package init() {}

    /// Notes the current depth. Called in the function.
    package func note() {
        var local = 0
        let address = withUnsafeMutablePointer(to: &local) { Int(bitPattern: $0) }
        _ = first.compareExchange(expected: 0, desired: address, ordering: .relaxed)
        last.store(address, ordering: .relaxed)
    }

    /// The last call's stack beyond that of the first, in bytes.
    package var growth: Int { first.load(ordering: .relaxed) - last.load(ordering: .relaxed) }

    /// True if the function was called.
    package var isNoted: Bool { first.load(ordering: .relaxed) != 0 }
}
