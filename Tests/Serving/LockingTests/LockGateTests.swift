import Glibc
import LinuxSystem
import Synchronization
import Testing

@testable import Locking

/// Requests that pass the gate, and requests for which a lock waits.
@Suite struct LockGateTests {
    @Test("drain waits for the request that is inside the gate, and for no other")
    func drain() throws {
        let gate = LockGate()
        let (busy, idle) = (gate.register(), gate.register())
        gate.enter(idle)
        gate.leave(idle)
        gate.drain()
        var isDone = false
        // On a busy machine the thread may not be waiting yet, so try again with more time.
        for milliseconds in [50, 1000, 5000] where !isDone {
            gate.enter(busy)
            let isDrained = Monitor(false)
            let thread = try BackgroundThread {
                gate.drain()
                isDrained.update { $0 = true }
            }
            // There is no event to await, so wait a while and expect the call to be still blocked.
            #expect(isDrained.wait(until: .now + .milliseconds(milliseconds)) { $0 ? () : nil } == nil)
            gate.leave(busy)
            // drain does not wait for the worker's next request.
            gate.enter(busy)
            isDone = isDrained.wait(until: .now + .seconds(5)) { $0 ? () : nil } != nil
            gate.leave(busy)
            thread.join()
        }
        #expect(isDone)
    }

    @Test("drain does not wait for a worker that ends, nor for one that lets the lock pass")
    func leaving() {
        let gate = LockGate()
        let (ended, passedBy) = (gate.register(), gate.register())
        gate.enter(ended)
        gate.unregister(ended)
        gate.enter(passedBy)
        gate.leave(passedBy)
        gate.leave(passedBy)
        gate.drain()
    }

    @Test("A request notices a lock file before any watch does, and reports it once", arguments: [0, 1000])
    func sign(grace: Int) throws {
        let place = try Place()
        let file = try place.file()
        let gate = LockGate(LockOptions(lockFiles: [file], graceMilliseconds: grace))
        let told = Atomic<Int>(0)
        gate.whenSighted { told.add(1, ordering: .relaxed) }
        #expect(gate.isUnlocked())
        try place.create(place.lock)
        for _ in 0..<3 { #expect(gate.isUnlocked() == (grace > 0)) }
        #expect(told.load(ordering: .relaxed) == 1)
        try place.remove(place.lock)
        // Refused until the lock controller has looked, because it first drops the pages of refused writes.
        #expect(gate.isUnlocked() == (grace > 0))
        #expect(gate.refusesForNothing() == (grace == 0))
        gate.enter(.opening)
        #expect(!gate.isUnlocked() && gate.admitsWrites())
        gate.enter(.unlocked)
        #expect(gate.isUnlocked() && gate.admitsWrites())
        // The next sighting is reported again.
        try place.create(place.lock)
        #expect(gate.isUnlocked() == (grace > 0))
        #expect(told.load(ordering: .relaxed) == 2)
        try place.remove(place.lock)
        gate.enter(.locking)
        #expect(!gate.isUnlocked() && !gate.admitsWrites())
    }

    @Test(
        "A lock file that comes during an unlock refuses writes, too", arguments: [LockGate.State.opening, .reopening])
    func lockFileDuringUnlock(state: LockGate.State) throws {
        let place = try Place()
        let gate = LockGate(LockOptions(lockFiles: [try place.file()]))
        gate.enter(state)
        #expect(gate.admitsWrites())
        try place.create(place.lock)
        #expect(!gate.admitsWrites())
    }

    @Test("Each wrong secret doubles the wait, up to a minute; a right one ends it")
    func limiter() {
        var limiter = UnlockLimiter()
        var now = ContinuousClock.now
        #expect(limiter.wait(at: now) == 0)
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60] {
            limiter.failed(at: now)
            #expect(limiter.wait(at: now + .milliseconds(seconds * 1000 - 1)) == 1)
            #expect(limiter.wait(at: now + .seconds(seconds)) == 0)
            now += .seconds(seconds)
        }
        limiter.failed(at: now)
        limiter.succeeded()
        #expect(limiter.wait(at: now) == 0)
        limiter.failed(at: now)
        #expect(limiter.wait(at: now + .seconds(1)) == 0)
    }
}
