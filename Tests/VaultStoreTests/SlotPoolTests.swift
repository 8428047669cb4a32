import FileSystem
import LinuxSystem
import Testing

@testable import VaultStore

/// Slots of the journal (FileFormat: Journal).
@Suite struct SlotPoolTests {
    @Test("Store-9: slots are given out in runs, each once")
    func runs() {
        let pool = SlotPool()
        let first = pool.take(3)
        let second = pool.take(32)
        #expect(first == 0b111)
        #expect(second == 0xFFFF_FFFF << 3)
        #expect(pool.take(29) == ~(first | second))
        pool.put(first)
        #expect(pool.take(2) == 0b11)
    }

    @Test("Store-9: without a run, scattered slots do")
    func scattered() {
        let pool = SlotPool()
        let all = pool.take(64)
        #expect(all == .max)
        pool.put(0b1010_1010)
        #expect(pool.take(3) == 0b0010_1010)
        #expect(pool.take(1) == 0b1000_0000)
    }

    @Test("Store-9: a write waits for a slot", .timeLimit(.minutes(20)))
    func waits() throws {
        let pool = SlotPool()
        let all = pool.take(64)
        let taken = Monitor<UInt64?>(nil)
        let thread = try BackgroundThread { [pool] in
            let slots = pool.take(2)
            taken.update { $0 = slots }
        }
        pool.put(0b1)
        #expect(taken.update { $0 } == nil)
        pool.put(0b100)
        #expect(taken.wait { $0 } == 0b101)
        thread.join()
        pool.put(all)
    }

    @Test("Store-10: retained slots are not given out, and nobody waits for them", .timeLimit(.minutes(20)))
    func retained() {
        let pool = SlotPool()
        pool.retain(.max << 4)
        #expect(pool.reach == 4)
        #expect(pool.take(10) == 0b1111)
        pool.put(0b1111)
        pool.put(1 << 63)
        #expect(pool.reach == 5)
        pool.retain(.max)
        #expect(pool.take(1) == 0)
    }
}
