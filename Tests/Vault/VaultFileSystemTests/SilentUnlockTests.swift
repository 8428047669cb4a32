import Glibc
import LinuxSystem
import Synchronization
import TestSupport
import Testing

@testable import FileSystem
@testable import Locking
@testable import VaultFileSystem

/// Unlocks while the store does not respond, and locks requested meanwhile.
@Suite(.timeLimit(.minutes(60))) struct SilentUnlockTests {
    private static let overtaken = UnlockRefusal.failed("a lock was asked for meanwhile")
    private static let unended = "keys of an unlock that was given up"

    /// Expects a locked vault with something left to purge, which refuses an unlock. After `answer`, expects a complete
    /// purge.
    private func expectPurge(_ setup: SilentStore, answer: () -> Void) throws {
        let (receipt, already) = try setup.lock()
        #expect(already && !receipt.complete)
        #expect(receipt.unpurged.count == 1 && receipt.unpurged.first?.hasPrefix(Self.unended) == true)
        #expect(setup.controller.status().lastReceipt == receipt)
        guard case .failure(.failed) = try setup.unlock(setup.key).awaited() else {
            Issue.record("another unlock was let in")
            return
        }
        #expect(setup.vault.system.gate.state == .locked)
        answer()
        _ = try setup.nextComplete()
        #expect(setup.vault.system.presentKeys == ["until-first-unlock", "none", "inbox"])
        #expect(setup.vault.system.gate.state == .locked)
        let (second, isAgain) = try setup.lock()
        #expect(isAgain && second.complete)
        #expect(try setup.unlock(setup.key).awaited() == .success(false))
        #expect(setup.vault.system.presentKeys.count == 5)
    }

    @Test("a lock does not wait for a secret that is tried on it, says that it is, and stays")
    func lockDoesNotWait() throws {
        let setup = try SilentStore(.forget)
        try setup.lockWholly()
        let (isSilent, isTried) = (Monitor(true), Monitor(false))
        let key = setup.key
        let unlock = setup.unlock { () throws(UnlockRefusal) in
            isTried.update { $0 = true }
            isSilent.wait { $0 ? nil : () }
            return try key()
        }
        isTried.wait { $0 ? () : nil }
        try expectPurge(setup) {
            isSilent.update { $0 = false }
        }
        #expect(try unlock.awaited() == .failure(Self.overtaken))
    }

    @Test("nor for keys that are brought back, which go again")
    func norForKeys() throws {
        let setup = try SilentStore(.forget)
        let system = setup.vault.system
        let node = try system.nodes.node(setup.vault.file("file", [1]).id)
        try setup.lockWholly()
        let (isHeld, isOpening) = (Monitor(true), Monitor(false))
        let opening = try BackgroundThread {
            node.opening.withLock { _ in
                isOpening.update { $0 = true }
                isHeld.wait { $0 ? nil : () }
            }
        }
        isOpening.wait { $0 ? () : nil }
        let unlock = setup.unlock(setup.key)
        try poll("the first requests", timeout: .seconds(60)) { system.presentKeys.count >= 4 }
        try expectPurge(setup) {
            isHeld.update { $0 = false }
        }
        #expect(try unlock.awaited() == .failure(Self.overtaken))
        opening.join()
    }

    @Test("a lock that came with the unlock, right after it, does not wait either")
    func lockThatCameWithUnlock() throws {
        let setup = try SilentStore(.forget)
        let isSilent = Monitor(true)
        defer { isSilent.update { $0 = false } }
        let (unlock, lock) = (Monitor<Result<Bool, UnlockRefusal>?>(nil), Monitor<LockReceipt?>(nil))
        setup.whenLocked { [controller = setup.controller, key = setup.key] in
            controller.unlock {
                () throws(UnlockRefusal) in
                isSilent.wait { $0 ? nil : () }
                return try key()
            } reply: { outcome in
                unlock.update { $0 = outcome }
            }
            controller.lock(.command) { receipt, _ in lock.update { $0 = receipt } }
        }
        setup.controller.lock(.command)
        let receipt = try lock.awaited()
        #expect(receipt.unpurged.first?.hasPrefix(Self.unended) == true)
        #expect(try unlock.awaited() == .failure(Self.overtaken))
    }

    @Test("a secret asked for that came while one was tried is asked for again when the store answers")
    func secretAskedForThatCame() throws {
        // Long enough to complete a lock, so that the secret is requested only once.
        let setup = try SilentStore(.forget, patience: 5000)
        try setup.createLockFile()
        _ = try setup.nextComplete()
        try setup.removeLockFile()
        let (isSilent, isTried) = (Monitor(true), Monitor(false))
        defer { isSilent.update { $0 = false } }
        let key = setup.key
        try setup.give(1) { () throws(UnlockRefusal) in
            isTried.update { $0 = true }
            isSilent.wait { $0 ? nil : () }
            return try key()
        }
        isTried.wait { $0 ? () : nil }
        // A new lock file cancels the try, and its removal requests the secret again.
        try setup.createLockFile()
        #expect(try setup.timesWanted() == 1)
        try setup.removeLockFile()
        try setup.give(2, key)
        #expect(try setup.timesWanted() == 2)
        #expect(setup.vault.system.gate.state == .locked)
        isSilent.update { $0 = false }
        try setup.give(3, key)
        #expect(try setup.unlock().awaited() == .success(true))
    }

    @Test(
        "A requested secret that could not be used is requested once more, after the next lock; a wrong one is not",
        arguments: [(UnlockRefusal.failed("no"), 2), (.wrongSecret("no"), 1)])
    func unused(refusal: UnlockRefusal, times: Int) throws {
        let setup = try SilentStore(.forget, patience: 20_000)
        try setup.createLockFile()
        _ = try setup.next()
        try setup.removeLockFile()
        try setup.give(1) { () throws(UnlockRefusal) in throw refusal }
        #expect(try setup.timesWanted() == 1)
        for _ in 0..<2 {
            setup.controller.lockAgainLater()
            _ = try setup.next()
            #expect(try setup.timesWanted() == times)
        }
    }

    @Test("none while the keys of a lock are still being wiped: they would go with the others")
    func noneWhileKeysOfLock() throws {
        var unpurged: [String] = []
        // On a busy machine another step may be late and delay the wiping of the keys, so try several times.
        for _ in 0..<5 {
            unpurged = try unpurgedWhileWiping()
            if unpurged.count == 1 { break }
        }
        #expect(unpurged.count == 1 && unpurged.first?.hasPrefix("keys: ") == true, "\(unpurged)")
    }

    /// Returns what a lock has left to purge while its keys are still being wiped. If only the keys are left, it also
    /// expects the refusal of an unlock.
    private func unpurgedWhileWiping() throws -> [String] {
        let setup = try SilentStore(.forget)
        let gate = setup.vault.system.gate
        let inFlight = gate.register()
        defer { gate.leave(inFlight) }
        // Enters the gate after the lock has waited for requests. The lock awaits this request before it wipes keys.
        setup.caches.whenWiping.withLock { $0 = { gate.enter(inFlight) } }
        setup.controller.lock(.command)
        let first = try setup.next()
        guard first.unpurged.count == 1 else { return first.unpurged }
        for _ in 0..<2 {
            #expect(
                try setup.unlock(setup.key).awaited()
                    == .failure(.failed("the vault's store does not answer: its keys are still being wiped")))
            #expect(gate.state == .locked)
        }
        gate.leave(inFlight)
        _ = try setup.nextComplete()
        #expect(setup.vault.system.presentKeys == ["until-first-unlock", "none", "inbox"])
        #expect(try setup.unlock(setup.key).awaited() == .success(false))
        #expect(setup.vault.system.presentKeys.count == 5)
        return first.unpurged
    }
}
