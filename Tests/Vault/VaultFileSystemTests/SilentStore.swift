import LinuxSystem
import Logging
import Synchronization
import Testing
import VaultCrypto

@testable import FileSystem
@testable import Locking

/// A vault with a lock controller that waits a second for a silent store. On a busy machine a working store may take
/// longer too. Then an incomplete receipt precedes the complete one.
final class SilentStore {
    /// A test's action in the middle of an operation, run once.
    typealias Hook = Mutex<(@Sendable () -> Void)?>

    /// Caches without a kernel. One of them waits for the store while `isHeld`.
    final class Caches: KernelCaches {
        let isHeld = Monitor(false)
        /// While set, `dropUnwritten` does not return.
        let areUnwrittenHeld = Monitor(false)
        /// Number of workers waiting for the store in fsync(2).
        let busyWorkers = Atomic<Int>(0)
        /// Called when the buffers of threads are wiped. A lock wipes the keys afterwards.
        let whenWiping = Hook(nil)

        func freeInodes(_ inodes: [UInt64]) -> [String] { [] }
        func dropUnwritten() -> [String] {
            areUnwrittenHeld.wait { $0 ? nil : () }
            return []
        }
        func awaitWipedWorkers(until deadline: ContinuousClock.Instant) -> Int { busyWorkers.load(ordering: .relaxed) }
        func dropInodes(_ inodes: [UInt64]) -> [String] {
            isHeld.wait { $0 ? nil : () }
            return []
        }
        func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) { ("epoch", []) }
        func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool { true }
        func wipeWorkers(waitingForAll: Bool) -> [String] {
            whenWiping.withLock { $0.take() }?()
            return []
        }
    }

    /// The actions of the lock controller's thread after a lock.
    private final class Announcements: Sendable {
        let receipts = Monitor<[LockReceipt]>([])
        let whenLocked = Hook(nil)
    }

    let vault: MountedVault
    let caches = Caches()
    let controller: LockController
    private let place: LockPlace
    private let announcements = Announcements()
    /// The requests for a secret, in order.
    private let wanted = Monitor<[@Sendable (@escaping LockController.SecretSource) -> Void]>([])

    /// - Parameter patience: milliseconds.
    init(_ policy: LockPolicy, patience: Int = 1000) throws {
        let place = try LockPlace()
        self.place = place
        var options = LockOptions(lockFiles: [try LockFile(path: place.file)], policy: policy)
        options.storeTimeoutMilliseconds = patience
        vault = try MountedVault(lock: options)
        controller = LockController(
            fileSystem: vault.system, options: options, caches: caches, logger: Logger(label: "test"),
            secretWanted: { [wanted] give in wanted.update { $0.append(give) } },
            announce: { [announcements] event in
                guard case .didLock(let receipt) = event else { return }
                announcements.receipts.update { $0.append(receipt) }
                if receipt.complete { announcements.whenLocked.withLock { $0.take() }?() }
            })
        try controller.start()
    }

    deinit { controller.stop() }

    /// Returns the next published receipt.
    func next() throws -> LockReceipt {
        let next = announcements.receipts.wait(until: .now + .seconds(20)) { $0.isEmpty ? nil : $0.removeFirst() }
        return try #require(next)
    }

    /// Returns the next complete receipt, and drops those before it.
    func nextComplete() throws -> LockReceipt {
        while true {
            let receipt = try next()
            if receipt.complete { return receipt }
        }
    }

    /// Locks, and waits until everything is purged.
    func lockWholly() throws {
        controller.lock(.command)
        _ = try nextComplete()
    }

    func createLockFile() throws {
        try place.create()
        controller.poke()
    }

    func removeLockFile() throws {
        try place.remove()
        controller.poke()
    }

    /// Returns the number of requests for a secret, after the lock controller has completed all earlier actions.
    func timesWanted() throws -> Int {
        _ = try unlock().awaited()
        return wanted.access { $0.count }
    }

    /// Supplies a secret at the `count`th request for one.
    func give(_ count: Int, _ key: @escaping LockController.SecretSource) throws {
        let last = wanted.wait(until: .now + .seconds(20)) { $0.count == count ? $0.last : nil }
        let give = try #require(last)
        give(key)
    }

    /// Sets the action for the lock controller's next lock that has purged everything. Its thread runs it.
    func whenLocked(_ body: @escaping @Sendable () -> Void) {
        announcements.whenLocked.withLock { $0 = body }
    }

    /// The right secret.
    var key: LockController.SecretSource {
        { [masterKey = vault.masterKey] () throws(UnlockRefusal) in UnlockSecret(masterKey) }
    }

    /// Unlocks. The result gets the reply.
    func unlock(_ key: LockController.SecretSource? = nil) -> Monitor<Result<Bool, UnlockRefusal>?> {
        let answer = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        controller.unlock(secret: key) { outcome in answer.update { $0 = outcome } }
        return answer
    }

    /// Locks, and returns the reply.
    func lock() throws -> (receipt: LockReceipt, already: Bool) {
        let answer = Monitor<(LockReceipt, Bool)?>(nil)
        controller.lock(.command) { receipt, already in answer.update { $0 = (receipt, already) } }
        let (receipt, already) = try answer.awaited()
        return (receipt, already)
    }
}

extension Monitor {
    /// Waits for the value, and returns it.
    func awaited<Value>() throws -> Value where State == Value? {
        try #require(wait(until: .now + .seconds(20)) { $0 })
    }
}
