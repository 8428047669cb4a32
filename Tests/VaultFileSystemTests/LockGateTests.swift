import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import Testing
import VaultStore

@testable import FileSystem
@testable import Locking
@testable import VaultFileSystem

/// Who passes the gate, and whom a lock waits for.
@Suite struct LockGateTests {
    @Test("drain waits for the request that is inside, and for no other")
    func drain() throws {
        let gate = LockGate()
        let (busy, idle) = (gate.register(), gate.register())
        gate.enter(idle)
        gate.leave(idle)
        gate.drain()
        var isDone = false
        // Once more with more time, where on a busy machine the thread had not come to wait.
        for milliseconds in [50, 1000, 5000] where !isDone {
            gate.enter(busy)
            let isDrained = Monitor(false)
            let thread = try BackgroundThread {
                gate.drain()
                isDrained.update { $0 = true }
            }
            // No sign of it can be awaited: it is one of not going on.
            #expect(isDrained.wait(until: deadline(milliseconds: milliseconds)) { $0 ? () : nil } == nil)
            gate.leave(busy)
            // The next request of the same worker is not waited for.
            gate.enter(busy)
            isDone = isDrained.wait(until: monotonicDeadline(in: 5)) { $0 ? () : nil } != nil
            gate.leave(busy)
            thread.join()
        }
        #expect(isDone)
    }

    @Test("A worker that ends is not waited for, and one that lets the lock pass by neither")
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

    @Test("A request sees a lock file before any watch does, and tells of it once", arguments: [0, 1000])
    func sign(grace: Int) throws {
        let place = try LockPlace()
        let file = try LockFile(path: place.file)
        let gate = LockGate(LockOptions(lockFiles: [file], graceMilliseconds: grace))
        let told = Atomic<Int>(0)
        gate.whenSighted { told.add(1, ordering: .relaxed) }
        #expect(gate.isUnlocked())
        try place.create()
        for _ in 0..<3 { #expect(gate.isUnlocked() == (grace > 0)) }
        #expect(told.load(ordering: .relaxed) == 1)
        // The lock controller has looked: the next sighting is news again.
        _ = gate.lockingFiles()
        _ = gate.isUnlocked()
        #expect(told.load(ordering: .relaxed) == 2)
        try place.remove()
        #expect(gate.isUnlocked())
        gate.enter(.locking)
        #expect(!gate.isUnlocked())
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

func deadline(milliseconds: Int) -> timespec {
    let time = monotonicMilliseconds() + milliseconds
    return timespec(tv_sec: time / 1000, tv_nsec: time % 1000 * 1_000_000)
}
