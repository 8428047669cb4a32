import FoundationEssentials
import Glibc
import LinuxSystem
import Logging
import Synchronization
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat
import VaultStore

@testable import FileSystem
@testable import Locking
@testable import VaultFileSystem
@testable import VaultFileSystemTests

/// Triggers of locks and unlocks (Manual/Locking.md, "What unlocks"), with caches without a kernel.
@Suite(.timeLimit(.minutes(60))) struct LockControllerTests {
    private func isLockFileRefusal(_ outcome: Result<Bool, UnlockRefusal>) -> Bool {
        if case .failure(.lockFile) = outcome { true } else { false }
    }

    @Test("Lock file, refuse: its creation locks, its removal unlocks, an unlock is refused while it exists")
    func lockFile() throws {
        let setup = try LockSetup()
        try setup.place.create()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        #expect(isLockFileRefusal(try setup.unlock()))
        #expect(setup.state == .locked)
        try setup.place.remove()
        setup.controller.poke()
        #expect(setup.next() == "did-unlock")
        #expect(setup.state == .unlocked)
    }

    @Test("A lock file that is gone before it was looked at: the status says locked only after a lock")
    func sightedForNothing() throws {
        let setup = try LockSetup()
        let (place, gate) = (setup.place, setup.vault.system.gate)
        let shown = Monitor<[String]>([])
        // Keeps the lock thread busy while the lock file appears, is found by a request, and vanishes.
        setup.whenTold.update {
            $0 = { event in
                guard case .didUnlock = event, (try? place.create()) != nil else { return }
                shown.update { $0.append("refused: \(!gate.isUnlocked())") }
                try? place.remove()
            }
        }
        #expect(try setup.lock() == false)
        setup.caches.whenDropping.update {
            $0 = { [weak controller = setup.controller] in
                let state = controller?.status().state ?? ""
                shown.update { $0.append(state) }
                if shown.access({ $0.count }) == 3 { try? place.create() }
            }
        }
        #expect(try setup.unlock().get() == false)
        // Each new lock file causes a lock.
        for event in ["did-lock", "did-unlock", "did-lock"] { #expect(setup.next() == event) }
        #expect(shown.access { $0 } == ["locked", "refused: true", "unlocked"])
        #expect(setup.state == .locked)
        #expect(setup.controller.status().locks == 2)
    }

    @Test("The order: names, inodes, workers while locking; with forget the workers again after the keys are wiped")
    func order() throws {
        for policy in [LockPolicy.refuse, .forget] {
            let setup = try LockSetup(policy)
            #expect(try setup.lock() == false)
            let calls = setup.caches.calls.update { $0 }
            let expected = ["names locking", "inodes locking", "workers locking"]
            #expect(calls == expected + (policy == .forget ? ["workers locked"] : []))
            #expect(try setup.lock() == true)
        }
    }

    @Test("At the notification of a lock or an unlock, the status shows it")
    func status() throws {
        let setup = try LockSetup(.forget)
        let statuses = Monitor<[String]>([])
        setup.whenTold.update { whenTold in
            whenTold = { [weak controller = setup.controller] event in
                guard let status = controller?.status() else { return }
                let name = "\(event)".prefix { $0 != "(" }
                statuses.update { $0.append("\(name) \(status.reasons ?? []) \(status.needsSecret == true)") }
            }
        }
        let key: LockController.SecretSource = { [masterKey = setup.vault.masterKey] () throws(UnlockRefusal) in
            UnlockSecret(masterKey)
        }
        for isFile in [true, false] {
            if isFile {
                try setup.place.create()
                setup.controller.poke()
                #expect(setup.next() == "did-lock")
                try setup.place.remove()
            } else {
                #expect(try setup.lock() == false)
                #expect(setup.next() == "did-lock")
            }
            #expect(try setup.unlock(key) == .success(false))
            #expect(setup.next() == "did-unlock")
            let reasons = [isFile ? "lock-file" : "command"]
            let expected = [
                "willLock \(reasons) false", "didLock \(reasons) true", "willUnlock [] false", "didUnlock [] false",
            ]
            #expect(
                statuses.update { seen in
                    defer { seen = [] }
                    return seen
                } == expected)
        }
    }

    @Test("Lock file, forget: stays locked after its removal, unlocks with the secret; open handles work again")
    func forget() throws {
        let setup = try LockSetup(.forget)
        let file = try setup.vault.file("f", pattern(5000)).id
        let system = setup.vault.system
        let handle = try system.open(file, flags: O_RDONLY, for: setup.vault.caller, workspace: setup.vault.workspace)
        try setup.place.create()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        #expect(system.store.keyRing.presentClasses == [.untilFirstUnlock, .none, .inbox])
        #expect(!handle.file.hasKeys)
        let key: LockController.SecretSource = { [masterKey = setup.vault.masterKey] () throws(UnlockRefusal) in
            UnlockSecret(masterKey)
        }
        #expect(isLockFileRefusal(try setup.unlock(key)))
        try setup.place.remove()
        #expect(try setup.unlock() == .failure(.secretNeeded))
        #expect(setup.state == .locked)
        #expect(try setup.unlock(key) == .success(false))
        #expect(try setup.vault.read(handle) == pattern(5000))
        system.release(handle)
    }

    @Test("A secret is requested once, when nothing else is missing; it does not override a reason to lock")
    func secretWanted() throws {
        let setup = try LockSetup(.forget)
        let key: LockController.SecretSource = { [masterKey = setup.vault.masterKey] () throws(UnlockRefusal) in
            UnlockSecret(masterKey.subrange(0..<masterKey.count))
        }
        /// Returns the last request for a secret, and expects this number of requests.
        func asked(_ count: Int) throws -> @Sendable (@escaping LockController.SecretSource) -> Void {
            // The reply comes after all earlier actions.
            _ = try setup.unlock()
            #expect(setup.wanted.access { $0.count } == count)
            return try #require(setup.wanted.access { $0.last })
        }
        func lockFileComesAndGoes() throws {
            try setup.place.create()
            setup.controller.poke()
            try setup.place.remove()
            setup.controller.poke()
        }
        try setup.place.create()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        _ = try setup.unlock()
        #expect(setup.wanted.access { $0.isEmpty })
        try setup.place.remove()
        setup.controller.poke()
        // Without a secret the vault stays locked, and the secret is not requested again.
        try asked(1)({ () throws(UnlockRefusal) in throw .failed("none") })
        let give = try asked(1)
        #expect(try setup.lock(.command) == true)
        give(key)
        #expect(try setup.unlock() == .failure(.secretNeeded))
        try lockFileComesAndGoes()
        #expect(try setup.unlock() == .failure(.secretNeeded))
        #expect(setup.wanted.access { $0.count } == 1 && setup.state == .locked)
        #expect(try setup.unlock(key) == .success(false))
        #expect(setup.next() == "did-unlock")
        // Now a lock file comes and goes once more.
        try setup.place.create()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        try setup.place.remove()
        setup.controller.poke()
        try asked(2)(key)
        #expect(setup.next() == "did-unlock")
        // A late secret has no effect.
        give(key)
        #expect(try setup.unlock() == .success(true))
    }

    @Test("Damage made while the keys were forgotten is EIO after the unlock, and works once it is repaired")
    func damagedWhileForgotten() throws {
        let setup = try LockSetup(.forget)
        let (system, vault) = (setup.vault.system, setup.vault)
        let file = try vault.file("f", pattern(5000)).id
        let handle = try system.open(file, flags: O_RDONLY, for: vault.caller, workspace: vault.workspace)
        let listing = try system.openDirectory(.root)
        let key: LockController.SecretSource = { [masterKey = vault.masterKey] () throws(UnlockRefusal) in
            UnlockSecret(masterKey)
        }
        #expect(try setup.lock(.command) == false)
        let record = URL(filePath: vault.path + "/vaultfs.dir")
        let good = try Data(contentsOf: record)
        let header = try handle.file.reader.status()
        let path = "/proc/self/fd/\(handle.file.reader.fd)"
        let writer = try FileDescriptor.open(FilePath(path), .readWrite)
        var first = [UInt8](repeating: 0, count: 128)
        _ = try first.withUnsafeMutableBytes { try writer.read(fromAbsoluteOffset: 0, into: $0) }
        try Data(repeating: 0, count: 64).write(to: record)
        _ = try writer.writeAll(toAbsoluteOffset: 0, [UInt8](repeating: 0, count: 128))
        #expect(header.st_size > 128)
        #expect(try setup.unlock(key) == .success(false))
        for _ in 1...2 {
            #expect(errno { _ = try vault.read(handle) } == EIO)
            #expect(errno { _ = try system.lookUp(ascii("f"), in: .root) } == EIO)
            #expect(errno { try system.list(listing, from: 0, withAttributes: false) { _ in true } } == EIO)
        }
        try good.write(to: record)
        _ = try writer.writeAll(toAbsoluteOffset: 0, first)
        try writer.close()
        #expect(try vault.read(handle) == pattern(5000))
        #expect(try system.lookUp(ascii("f"), in: .root).id == file)
        system.forget(file, count: 1)
        system.release(handle)
        system.release(listing)
    }

    private func errno(_ body: () throws -> Void) -> Int32? {
        do { try body() } catch { return (error as? StoreError)?.errno.rawValue }
        return nil
    }

    @Test(
        "A command, idleness or a signal keeps a vault locked after a lock file was removed",
        arguments: [LockReason.command, .idle, .signal])
    func severalReasons(_ reason: LockReason) throws {
        let setup = try LockSetup()
        try setup.place.create()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        #expect(try setup.lock(reason) == true)
        try setup.place.remove()
        setup.controller.poke()
        // The controller checks the lock files before it answers a lock.
        #expect(try setup.lock(reason) == true)
        #expect(setup.state == .locked)
        #expect(try setup.unlock() == .success(false))
        #expect(try setup.unlock() == .success(true))
    }

    @Test("A directory that was removed and made again keeps the vault locked until an unlock accepts it")
    func directory() throws {
        let setup = try LockSetup()
        try setup.place.removeDirectory()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        try setup.place.makeDirectory()
        setup.controller.poke()
        #expect(try setup.lock(.lockDirectory) == true)
        #expect(setup.controller.status().reasons == [LockReason.lockDirectory.rawValue])
        #expect(try setup.unlock() == .success(false))
        #expect(setup.vault.system.gate.isUnlocked())
    }

    @Test("A watch that fails locks; an unlock accepts the current state")
    func watchFailure() throws {
        let setup = try LockSetup()
        setup.controller.watchFailed("no reason")
        #expect(setup.next() == "did-lock")
        #expect(try setup.unlock() == .success(false))
    }

    @Test("Idle for the configured time, with a file open: locks")
    func idle() throws {
        let setup = try LockSetup(idleMilliseconds: 50)
        #expect(setup.next() == "did-lock")
        #expect(setup.controller.status().lastReceipt?.reasons == [LockReason.idle.rawValue])
    }

    @Test("Wrong secrets are rate-limited; a key of another vault does not unlock")
    func secrets() throws {
        let setup = try LockSetup(.forget)
        _ = try setup.lock()
        let other = try SecretBytes.random(count: 32)
        guard case .failure(.failed) = try setup.unlock({ () throws(UnlockRefusal) in UnlockSecret(other) }) else {
            Issue.record("another vault's key was not refused")
            return
        }
        #expect(setup.state == .locked)
        let tries = Atomic<Int>(0)
        func attempt() throws -> Result<Bool, UnlockRefusal> {
            try setup.unlock { () throws(UnlockRefusal) in
                tries.add(1, ordering: .relaxed)
                throw .wrongSecret("no")
            }
        }
        let started = ContinuousClock.now
        #expect(try attempt() == .failure(.wrongSecret("no")))
        for _ in 0..<3 {
            guard case .failure(.tooManyTries) = try attempt(), tries.load(ordering: .relaxed) == 1 else {
                // The controller may accept another try after a second.
                if ContinuousClock.now - started < .seconds(1) { Issue.record("a second secret was tried at once") }
                return
            }
        }
    }

    @Test("Locked from the start: objects that wait for the first unlock wait, then work through later locks")
    func untilFirstUnlock() throws {
        let setup = try LockSetup(isLocked: true)
        #expect(setup.state == .locked)
        #expect(!setup.vault.system.gate.hasBeenUnlocked)
        try setup.place.remove()
        setup.controller.poke()
        #expect(setup.next() == "did-lock")
        #expect(setup.next() == "did-unlock")
        _ = try setup.lock()
        #expect(setup.vault.system.gate.hasBeenUnlocked)
    }

    @Test("stop returns only after the thread has ended")
    func stop() throws {
        let setup = try LockSetup()
        setup.caches.isHeld.update { $0 = true }
        setup.controller.lock(.command)
        setup.caches.calls.wait { $0.contains("inodes locking") ? () : nil }
        let stopped = Monitor(0)
        let threads = try (0..<2).map { _ in
            try BackgroundThread { [controller = setup.controller] in
                controller.stop()
                stopped.update { $0 += 1 }
            }
        }
        // There is no event to await, so wait a while and expect all calls to be still blocked.
        #expect(stopped.wait(until: .now + .milliseconds(50)) { $0 > 0 ? () : nil } == nil)
        setup.caches.isHeld.update { $0 = false }
        for thread in threads { thread.join() }
        #expect(setup.next() == "did-lock")
    }
}
