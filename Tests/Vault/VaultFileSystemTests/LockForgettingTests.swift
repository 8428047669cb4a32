import FileSystem
import LinuxSystem
import Locking
import Synchronization
import Testing
import VaultFormat

@testable import VaultFileSystem
@testable import VaultStore

/// `vaultfs lock --forget` on a mount that otherwise keeps its keys.
@Suite(.timeLimit(.minutes(60))) struct LockForgettingTests {
    private func key(of setup: LockSetup) -> LockController.SecretSource {
        { [masterKey = setup.vault.masterKey] () throws(UnlockRefusal) in UnlockSecret(masterKey) }
    }

    @Test("one lock forgets the keys, the next keeps them again")
    func once() throws {
        let setup = try LockSetup()
        let (receipt, already) = try setup.lockForgetting()
        #expect(receipt.policy == "forget" && receipt.needsSecret == true && !already)
        #expect(setup.vault.system.store.keyRing.presentClasses == [.untilFirstUnlock, .none, .inbox])
        #expect(try setup.unlock() == .failure(.secretNeeded))
        #expect(try setup.unlock(key(of: setup)) == .success(false))
        #expect(try setup.lock() == false)
        let status = setup.controller.status()
        #expect(status.lastReceipt?.policy == "refuse" && status.lastReceipt?.needsSecret == false)
        #expect(try setup.unlock() == .success(false))
    }

    @Test("the name that was looked up last is forgotten by each lock")
    func lastName() throws {
        let setup = try LockSetup()
        let system = setup.vault.system
        func isKnown() -> Bool { system.store.lastName.known.withLock { $0 != nil } }
        for forgets in [false, true] {
            _ = try? system.lookUp(Array("a name".utf8), in: .root)
            #expect(isKnown())
            if forgets { _ = try setup.lockForgetting() } else { _ = try setup.lock() }
            #expect(!isKnown())
            _ = try setup.unlock(key(of: setup))
        }
    }

    @Test("a mount that is locked already forgets its keys, once")
    func later() throws {
        let setup = try LockSetup()
        #expect(try setup.lock() == false)
        #expect(setup.vault.system.store.keyRing.presentClasses.contains(.complete))
        let (receipt, already) = try setup.lockForgetting()
        #expect(receipt.policy == "forget" && !already)
        #expect(!setup.vault.system.store.keyRing.presentClasses.contains(.complete))
        #expect(try setup.lockForgetting().already)
        #expect(try setup.unlock() == .failure(.secretNeeded))
        #expect(try setup.unlock(key(of: setup)) == .success(false))
    }

    @Test("the removal of the lock file does not unlock then")
    func lockFile() throws {
        let setup = try LockSetup(isLocked: true)
        _ = try setup.lockForgetting()
        try setup.place.remove()
        setup.controller.poke()
        #expect(try setup.unlock() == .failure(.secretNeeded))
        #expect(setup.state == .locked)
    }
}

extension LockSetup {
    func lockForgetting() throws -> (receipt: LockReceipt, already: Bool) {
        let answer = Monitor<(LockReceipt, Bool)?>(nil)
        controller.lock(.command, forgetsKeys: true) { receipt, already in answer.update { $0 = (receipt, already) } }
        let given = answer.wait(until: .now + .seconds(20)) { $0 }
        return try #require(given)
    }
}
