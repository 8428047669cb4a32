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

/// The effect of a lease's end on a mount.
@Suite(.timeLimit(.minutes(60))) struct LeaseLockTests {
    /// Caches without a kernel.
    private final class Caches: KernelCaches {
        /// Failures to drop the pages of refused writes. If there are any, an unlock fails.
        let unwritten = Monitor<[String]>([])

        func freeInodes(_ inodes: [UInt64]) -> [String] { [] }
        func dropUnwritten() -> [String] { unwritten.access { $0 } }
        func awaitWipedWorkers(until deadline: ContinuousClock.Instant) -> Int { 0 }
        func dropInodes(_ inodes: [UInt64]) -> [String] { [] }
        func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) { ("epoch", []) }
        func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool { true }
        func wipeWorkers(waitingForAll: Bool) -> [String] { [] }
    }

    /// A lease ended by the test.
    private final class Lease: LeaseKeeper {
        private let state = Mutex<(end: LeaseEnd?, hasEnded: Bool)>((nil, false))
        let notes = Atomic<Int>(0)
        /// True while its vault's store does not respond.
        let isSilent = Monitor(false)

        var end: LeaseEnd? { state.withLock { $0.end } }
        var isOver: Bool { state.withLock { $0.hasEnded } }
        /// The number of checks.
        let looks = Monitor(0)

        func hasEnded() -> Bool {
            looks.update { $0 += 1 }
            isSilent.wait { $0 ? nil : () }
            return isOver
        }
        var changes: EntryWatch? { nil }
        func saveTime() { notes.add(1, ordering: .sequentiallyConsistent) }
        func set(hasEnded: Bool, end: LeaseEnd? = nil) { state.withLock { $0 = (end, hasEnded) } }
    }

    /// One vault with a lock controller.
    private final class Setup {
        let vault: MountedVault
        let place: LockPlace
        let lease: Lease
        let caches = Caches()
        let controller: LockController
        private let receipts: Monitor<[LockReceipt]>

        /// - Parameter whenToLock: called by the lock controller's thread, before a grace period.
        init(
            _ policy: LockPolicy = .refuse, lease: Lease = Lease(), storeTimeoutMilliseconds: Int = 10_000,
            grace: Int = 0,
            whenToLock: @escaping @Sendable () -> Void = {}
        ) throws {
            place = try LockPlace()
            self.lease = lease
            var options = LockOptions(
                lockFiles: [try LockFile(path: place.file)], policy: policy, graceMilliseconds: grace)
            options.storeTimeoutMilliseconds = storeTimeoutMilliseconds
            vault = try MountedVault(lock: options)
            let receipts = Monitor<[LockReceipt]>([])
            self.receipts = receipts
            controller = LockController(
                fileSystem: vault.system, options: options, lease: lease, caches: caches,
                logger: Logger(label: "test")
            ) { event in
                switch event {
                case .willLock: whenToLock()
                case .didLock(let receipt): receipts.update { $0.append(receipt) }
                default: break
                }
            }
            try controller.start()
        }

        deinit { controller.stop() }

        func nextLock() throws -> LockReceipt {
            let next = receipts.wait(until: .now + .seconds(20)) { $0.isEmpty ? nil : $0.removeFirst() }
            return try #require(next)
        }

        func unlock(_ key: LockController.SecretSource? = nil) throws -> Result<Bool, UnlockRefusal> {
            let answer = Monitor<Result<Bool, UnlockRefusal>?>(nil)
            controller.unlock(secret: key) { outcome in answer.update { $0 = outcome } }
            return try #require(answer.wait(until: .now + .seconds(20)) { $0 })
        }

        func expire() throws -> LockReceipt {
            lease.set(hasEnded: true)
            controller.poke()
            return try nextLock()
        }
    }

    @Test("A requested lock does not wait for a store that does not respond to a check of the lease")
    func silentStore() throws {
        let setup = try Setup(storeTimeoutMilliseconds: 60_000)
        setup.lease.isSilent.update { $0 = true }
        defer { setup.lease.isSilent.update { $0 = false } }
        setup.controller.lock(.command)
        #expect(try setup.nextLock().reasons == [LockReason.command.rawValue])
        #expect(setup.vault.system.gate.state == .locked)
    }

    @Test("A lock does not wait either if the check has begun, and the lock controller itself knows its reason")
    func silentSince() throws {
        let setup = try Setup(storeTimeoutMilliseconds: 60_000)
        setup.lease.isSilent.update { $0 = true }
        defer { setup.lease.isSilent.update { $0 = false } }
        let before = setup.lease.looks.access { $0 }
        setup.controller.poke()
        setup.lease.looks.wait { $0 > before ? () : nil }
        setup.controller.lock(.command)
        #expect(try setup.nextLock().reasons == [LockReason.command.rawValue])
    }

    @Test(
        "A grace period ends at its time, and when nobody writes any more, whatever the store does",
        arguments: [100, 60_000])
    func silentGrace(grace: Int) throws {
        let lease = Lease()
        let controller = Mutex<LockController?>(nil)
        let setup = try Setup(lease: lease, storeTimeoutMilliseconds: 60_000, grace: grace) {
            lease.isSilent.update { $0 = true }
            controller.withLock { $0 }?.poke()
        }
        defer {
            lease.isSilent.update { $0 = false }
            controller.withLock { $0 = nil }
        }
        controller.withLock { $0 = setup.controller }
        let (system, vault) = (setup.vault.system, setup.vault)
        let file = try vault.file("f", pattern(5000)).id
        let handle = try system.open(file, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)
        let before = lease.looks.access { $0 }
        setup.controller.lock(.command)
        lease.looks.wait { $0 > before ? () : nil }
        if grace > 1000 { system.release(handle) }
        let receipt = try setup.nextLock()
        #expect(receipt.reasons == [LockReason.command.rawValue])
        if grace <= 1000 { system.release(handle) }
    }

    @Test("A lock that is requested while a secret is tried is not overtaken by the unlock")
    func lockWhileUnlocking() throws {
        let setup = try Setup(.forget)
        setup.controller.lock(.command)
        _ = try setup.nextLock()
        let (controller, masterKey) = (setup.controller, setup.vault.masterKey)
        let outcome = try setup.unlock { () throws(UnlockRefusal) in
            controller.lock(.command)
            return UnlockSecret(masterKey)
        }
        #expect(outcome == .failure(.failed("a lock was asked for meanwhile")))
        #expect(setup.vault.system.gate.state == .locked)
        #expect(setup.vault.system.store.keyRing.presentClasses.count == 3)
        #expect(try setup.unlock { () throws(UnlockRefusal) in UnlockSecret(masterKey) } == .success(false))
    }

    @Test("An unlock that could not be finished leaves the keys that it has brought to the next end of the lease")
    func expiresAgain() throws {
        let setup = try Setup()
        _ = try setup.expire()
        #expect(setup.vault.keyRing.presentClasses == [])
        setup.caches.unwritten.update { $0 = ["1 page"] }
        let (masterKey, lease) = (setup.vault.masterKey, setup.lease)
        let outcome = try setup.unlock { () throws(UnlockRefusal) in
            UnlockSecret(masterKey) { lease.set(hasEnded: false) }
        }
        #expect(throws: UnlockRefusal.self) { try outcome.get() }
        _ = try setup.nextLock()
        #expect(setup.vault.keyRing.presentClasses != [])
        // Each event causes another try of the unlock, and another lock.
        var receipt = try setup.expire()
        while receipt.reasons == [] { receipt = try setup.nextLock() }
        #expect(receipt.reasons == [LockReason.expired.rawValue])
        #expect(setup.vault.keyRing.presentClasses == [])
    }

    @Test("An expired lease locks and forgets the keys, whatever the policy; requests get EKEYEXPIRED")
    func expires() throws {
        for policy in [LockPolicy.refuse, .forget] {
            let setup = try Setup(policy)
            let (system, vault) = (setup.vault.system, setup.vault)
            let file = try vault.file("f", pattern(5000)).id
            let handle = try system.open(file, flags: O_RDONLY, for: vault.caller, workspace: vault.workspace)
            let receipt = try setup.expire()
            #expect(receipt.reasons == [LockReason.expired.rawValue] && receipt.policy == "forget")
            #expect(system.store.keyRing.presentClasses == [])
            #expect(system.store.keyRing.configurationKey.isForgotten)
            #expect(setup.controller.status().reasons == [LockReason.expired.rawValue])
            expect(Errno(rawValue: EKEYEXPIRED)) { _ = try vault.read(handle) }
            expect(Errno(rawValue: EKEYEXPIRED)) { _ = try system.lookUp(ascii("f"), in: .root) }

            #expect(try setup.unlock() == .failure(.secretNeeded))
            #expect(
                try setup.unlock { () throws(UnlockRefusal) in throw .slotExpired("") } == .failure(.slotExpired("")))
            let masterKey = vault.masterKey
            let lease = setup.lease
            // Allowed at once: the right secret of an expired slot does not count as a guess.
            let outcome = try setup.unlock { () throws(UnlockRefusal) in
                UnlockSecret(masterKey) { lease.set(hasEnded: false) }
            }
            #expect(outcome == .success(false))
            #expect(try vault.read(handle) == pattern(5000))
            #expect(!system.store.keyRing.configurationKey.isForgotten)
            _ = setup.controller.lockAndWait()
            expect(Errno(rawValue: ENOKEY)) { _ = try vault.read(handle) }
            system.release(handle)
        }
    }

    @Test("A lease that ends while a lock file locks removes the keys too; the file's removal does not unlock")
    func expiresWhileLocked() throws {
        let setup = try Setup()
        try setup.place.create()
        setup.controller.poke()
        #expect(try setup.nextLock().policy == "refuse")
        expect(Errno(rawValue: ENOKEY)) { _ = try setup.vault.system.lookUp(ascii("f"), in: .root) }
        #expect(!setup.vault.keyRing.configurationKey.isForgotten)
        let receipt = try setup.expire()
        #expect(receipt.reasons.map(Set.init) == ["expired", "lock-file"] && receipt.policy == "forget")
        #expect(setup.vault.keyRing.presentClasses == [])
        try setup.place.remove()
        setup.controller.poke()
        #expect(try setup.unlock() == .failure(.secretNeeded))
        #expect(setup.vault.system.gate.state == .locked)
        expect(Errno(rawValue: EKEYEXPIRED)) { _ = try setup.vault.system.lookUp(ascii("f"), in: .root) }
    }

    @Test(
        "After the end no class opens anything: open files and names of each are refused, and all keys are wiped",
        arguments: [false, true])
    func allClasses(isLockedBefore: Bool) throws {
        let setup = try Setup(.forget)
        let (system, vault) = (setup.vault.system, setup.vault)
        let name = ascii("user.vaultfs.class")
        var files: [(NodeID, FileHandle)] = []
        for text in ["unless-open", "until-first-unlock", "none"] {
            let file = try vault.file(text, pattern(5000)).id
            try system.setAttribute(file, name, value: ascii(text), flags: 0)
            files.append((file, try system.open(file, flags: O_RDWR, for: vault.caller, workspace: vault.workspace)))
        }
        try system.setAttribute(.root, name, value: ascii("none"), flags: 0)
        let listing = try system.openDirectory(.root)
        if isLockedBefore {
            setup.controller.lockAndWait()
            for (_, handle) in files { #expect(try vault.read(handle) == pattern(5000)) }
            _ = try setup.nextLock()
        }
        let receipt = try setup.expire()
        #expect(receipt.keysForgotten?.contains("none") == true && system.store.keyRing.presentClasses == [])
        let expired = Errno(rawValue: EKEYEXPIRED)
        for (file, handle) in files {
            #expect(!handle.file.hasKeys)
            expect(expired) { _ = try vault.read(handle) }
            expect(expired) { try vault.write(handle, [1]) }
            expect(expired) { _ = try system.attributes(file) }
            expect(expired) { _ = try system.open(file, flags: O_RDONLY, for: .root, workspace: vault.workspace) }
        }
        expect(expired) { _ = try system.lookUp(ascii("none"), in: .root) }
        expect(expired) { _ = try system.openDirectory(.root) }
        expect(expired) { try system.list(listing, from: 0, withAttributes: false) { _ in true } }
        let (masterKey, lease) = (vault.masterKey, setup.lease)
        let outcome = try setup.unlock { () throws(UnlockRefusal) in
            UnlockSecret(masterKey) { lease.set(hasEnded: false) }
        }
        #expect(outcome == .success(false))
        #expect(system.store.keyRing.presentClasses == ProtectionClass.allCases)
        for (_, handle) in files {
            #expect(try vault.read(handle) == pattern(5000))
            system.release(handle)
        }
        // The unlock has ended the expiry, so another lock leaves the same keys.
        setup.controller.lockAndWait()
        #expect(try vault.content("none") == pattern(5000))
    }

    @Test("The timer checks the lease when the first of its clocks reaches the end", arguments: [true, false])
    func timer(isWall: Bool) throws {
        let lease = Lease()
        let (wall, boot) = (LeaseClock.system.wall() + 30, LeaseClock.system.boot() + 30)
        let far: Int64 = 1_000_000
        lease.set(
            hasEnded: false, end: LeaseEnd(wall: isWall ? wall : wall + far, boot: isWall ? boot + far : boot))
        let setup = try Setup(lease: lease)
        #expect(setup.controller.status().leaseEnds != nil)
        // The controller has checked the lease at its start. The timer makes the next check.
        lease.set(hasEnded: true, end: lease.end)
        #expect(try setup.nextLock().reasons == [LockReason.expired.rawValue])
    }

    @Test("The time is recorded at a lock, at the end, and at a request after a while")
    func notes() throws {
        let setup = try Setup()
        #expect(setup.lease.notes.load(ordering: .sequentiallyConsistent) == 0)
        setup.controller.lockAndWait()
        #expect(setup.lease.notes.load(ordering: .sequentiallyConsistent) == 1)
        setup.controller.stop()
        #expect(setup.lease.notes.load(ordering: .sequentiallyConsistent) == 2)

        let gate = LockGate()
        let calls = Atomic<Int>(0)
        gate.callAtActivity(after: 1_000_000) { calls.add(1, ordering: .relaxed) }
        gate.markActivity()
        #expect(calls.load(ordering: .relaxed) == 0)
        gate.callAtActivity(after: -1000) { calls.add(1, ordering: .relaxed) }
        #expect(calls.load(ordering: .relaxed) == 0)
        for _ in 0..<3 { gate.markActivity() }
        #expect(calls.load(ordering: .relaxed) == 1)
    }
}

extension LockController {
    /// Locks like `vaultfs lock`.
    @discardableResult
    fileprivate func lockAndWait() -> Bool {
        let answer = Monitor<Bool?>(nil)
        lock(.command) { _, already in answer.update { $0 = already } }
        return answer.wait(until: .now + .seconds(20)) { $0 } ?? false
    }
}
