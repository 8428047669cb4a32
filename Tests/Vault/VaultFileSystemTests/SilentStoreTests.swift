import Glibc
import LinuxSystem
import Synchronization
import SystemPackage
import TestSupport
import Testing

@testable import FileSystem
@testable import Locking
@testable import VaultFileSystem
@testable import VaultStore

/// A lock while requests wait for a silent store.
@Suite(.timeLimit(.minutes(60))) struct SilentStoreTests {
    @Test(
        "A request that does not return: refused at once, the rest reported, and purged when it returns",
        arguments: [LockPolicy.refuse, .forget])
    func request(policy: LockPolicy) throws {
        let setup = try SilentStore(policy)
        let gate = setup.vault.system.gate
        try setup.vault.file("file", [1, 2, 3])
        _ = try setup.vault.content("file")
        let inFlight = gate.register()
        gate.enter(inFlight)
        setup.controller.lock(.command)
        let first = try setup.next()
        #expect(!first.complete)
        #expect(first.unpurged.first?.hasPrefix("data of 1 request in progress") == true, "\(first.unpurged)")
        #expect(first.unpurged.contains { $0.hasPrefix("keys") } == (policy == .forget))
        #expect(gate.state == .locked)
        #expect(setup.vault.system.cache.usedSize == 0)
        expect(Errno(rawValue: ENOKEY)) { _ = try setup.vault.content("file") }
        #expect(setup.vault.system.presentKeys.count == 5)
        gate.leave(inFlight)
        let second = try setup.nextComplete()
        #expect(setup.vault.system.presentKeys.count == (policy == .forget ? 3 : 5))
        #expect(setup.controller.status().lastReceipt == second)
    }

    @Test("A file that is being opened, without a response, does not make a lock wait")
    func opening() throws {
        let setup = try SilentStore(.refuse)
        let id = try setup.vault.file("file", [1, 2, 3]).id
        let node = try setup.vault.system.nodes.node(id)
        let (isHeld, isOpening) = (Monitor(true), Monitor(false))
        let opening = try BackgroundThread {
            node.opening.withLock { _ in
                isOpening.update { $0 = true }
                isHeld.wait { $0 ? nil : () }
            }
        }
        isOpening.wait { $0 ? () : nil }
        #expect(setup.vault.system.inodesToDrop().contains(setup.vault.system.nodes.id(of: node).rawValue))
        isHeld.update { $0 = false }
        opening.join()
    }

    @Test("Pages that the kernel waits for: reported, and dropped later; an unlock before that is not undone")
    func pages() throws {
        let setup = try SilentStore(.refuse)
        setup.caches.isHeld.update { $0 = true }
        setup.controller.lock(.command)
        let first = try setup.next()
        #expect(!first.complete)
        #expect(first.unpurged.contains { $0.hasPrefix("pages of open files") }, "\(first.unpurged)")
        #expect(setup.vault.system.gate.state == .locked)
        setup.caches.isHeld.update { $0 = false }
        let unlocked = Monitor(false)
        setup.controller.unlock(reply: { _ in unlocked.update { $0 = true } })
        #expect(unlocked.wait(until: .now + .seconds(20)) { $0 ? () : nil } != nil)
        #expect(setup.vault.system.gate.state == .unlocked)
    }

    @Test("A worker that waits for the store in fsync(2) may have plaintext in its buffers: reported")
    func busyWorker() throws {
        let setup = try SilentStore(.refuse)
        setup.caches.busyWorkers.store(1, ordering: .relaxed)
        setup.controller.lock(.command)
        let receipt = try setup.next()
        #expect(
            receipt.unpurged.first?.hasPrefix("the buffers of a thread: it gets no processor, or") == true, "\(receipt)"
        )
        setup.caches.busyWorkers.store(0, ordering: .relaxed)
        _ = try setup.nextComplete()
    }

    @Test("A store that makes nothing durable any more holds a lock up no longer than another that does not answer")
    func durable() throws {
        let setup = try SilentStore(.refuse)
        try setup.vault.file("file", [1, 2, 3])
        let started = ContinuousClock.now
        setup.vault.system.store.durability.sealer.round.withLock { _ in
            setup.controller.lock(.command)
            let receipt = try? setup.next()
            #expect(receipt?.missingData?.isEmpty == false)
            // Few steps of a lock wait for this store, each for a second at most.
            #expect(ContinuousClock.now - started < .seconds(20))
        }
    }

    @Test("An unlock lets no request pass before the pages of refused writes are dropped")
    func unwritten() throws {
        let setup = try SilentStore(.refuse)
        let gate = setup.vault.system.gate
        setup.controller.lock(.command)
        _ = try setup.nextComplete()
        setup.caches.areUnwrittenHeld.update { $0 = true }
        let outcome = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        setup.controller.unlock(reply: { result in outcome.update { $0 = result } })
        // The vault stays locked, and its receipt says so.
        _ = try setup.next()
        let first = outcome.wait(until: .now + .seconds(20)) { $0 }
        guard case .failure? = first else { return #expect(Bool(false), "\(String(describing: first))") }
        #expect(gate.state != .unlocked && !gate.isUnlocked())
        setup.caches.areUnwrittenHeld.update { $0 = false }
        // The controller unlocks by itself when the kernel answers.
        try poll("the unlock") { gate.state == .unlocked }
    }

    @Test("A lock without such a request is complete, and reports nothing")
    func answering() throws {
        let setup = try SilentStore(.forget, patience: 20_000)
        setup.controller.lock(.command)
        let receipt = try setup.next()
        #expect(receipt.complete && receipt.unpurged.isEmpty)
        #expect(
            receipt.steps?.map(\.name) == ["requests", "names", "inodes", "cache", "workers", "free", "seal", "keys"])
    }

    @Test("An operation that does not end in time continues by itself")
    func bounds() {
        let isHeld = Monitor(true)
        let hasEnded = Monitor(false)
        #expect(withinTime(milliseconds: 20_000) { 5 } == 5)
        let late = withinTime(milliseconds: 20) {
            isHeld.wait { $0 ? nil : () }
            hasEnded.update { $0 = true }
            return 6
        }
        #expect(late == nil)
        isHeld.update { $0 = false }
        #expect(hasEnded.wait(until: .now + .seconds(20)) { $0 ? () : nil } != nil)
    }
}
