internal import FileSystem
internal import LinuxSystem

/// Which of the journal's 64 slots are free; waits for some when none are. Slots are bits. Any thread.
final class SlotPool: Sendable {
    private struct State {
        var free: UInt64 = .max
        var retained: UInt64 = 0
        var reach: Int { 64 - retained.nonzeroBitCount }
    }

    private let state = Monitor(State())

    /// How many slots a batch can hope for: all but those retained.
    var reach: Int { state.access { $0.reach } }

    /// Takes `count` slots, next to one another where there is such a run; waits for them. Fewer only when so many
    /// are retained that `count` cannot be had.
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
