internal import LinuxSystem

/// The free slots of the journal's 64, as bits. Any thread.
final class SlotPool: Sendable {
    private struct State {
        var free: UInt64 = .max
        var retained: UInt64 = 0
        var reach: Int { 64 - retained.nonzeroBitCount }
    }

    private let state = Monitor(State())

    /// Number of slots that are not retained. A batch can get as many.
    var reach: Int { state.access { $0.reach } }

    /// Takes `count` slots and waits for them. They are adjacent if there is such a run. Takes fewer only if so many
    /// slots are retained that there can never be `count`.
    func take(_ count: Int) -> UInt64 {
        state.wait { state in
            let wanted = min(count, state.reach)
            guard state.free.nonzeroBitCount >= wanted else { return nil }
            let slots = Self.pick(wanted, from: state.free)
            state.free &= ~slots
            return slots
        }
    }

    func put(_ slots: UInt64) {
        state.update { state in
            state.free |= slots
            state.retained &= ~slots
        }
    }

    /// Marks slots as holding the only good copy of a record.
    func retain(_ slots: UInt64) {
        state.update { state in
            state.free &= ~slots
            state.retained |= slots
        }
    }

    private static func pick(_ count: Int, from free: UInt64) -> UInt64 {
        let run: UInt64 = count == 64 ? .max : (1 << UInt64(count)) - 1
        for start in 0...(64 - count) where free & (run << UInt64(start)) == run << UInt64(start) {
            return run << UInt64(start)
        }
        var result: UInt64 = 0
        var left = free
        for _ in 0..<count {
            result |= left & (~left &+ 1)
            left &= left &- 1
        }
        return result
    }
}
