import LinuxSystem
import Logging
import Synchronization
import Testing
import VaultCrypto

@testable import FileSystem
@testable import Locking

/// A vault with a lock controller that waits a second for operations of a store that does not respond. On a busy
/// machine a working store may take longer too. Then a receipt that should be complete is followed by another.
final class SilentStore {
    /// An action of a test in the middle of an operation, once.
    typealias Hook = Mutex<(@Sendable () -> Void)?>

    /// Caches without a kernel. One of them waits for the store while `isHeld`.
    final class Caches: KernelCaches {
        let isHeld = Monitor(false)
        /// While set, the pages of refused writes cannot be dropped.
        let areUnwrittenHeld = Monitor(false)
        /// Number of workers that wait for the store in fsync(2).
        let busyWorkers = Atomic<Int>(0)
        /// Called when the buffers of threads are wiped. After that a lock wipes the keys.
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

    /// The actions of the lock controller's thread when it has locked.
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

    /// The next receipt that was published.
    func next() throws -> LockReceipt {
        let next = announcements.receipts.wait(until: .now + .seconds(20)) { $0.isEmpty ? nil : $0.removeFirst() }
        return try #require(next)
    }

    /// The first complete receipt that is published.
    func nextComplete() throws -> LockReceipt {
        while true {
            let receipt = try next()
            if receipt.complete { return receipt }
        }
    }

    /// Locks, and waits until all is purged.
    func lockWholly() throws {
        controller.lock(.command)
        _ = try nextComplete()
    }

    /// Makes a lock file appear.
    func createLockFile() throws {
        try place.create()
        controller.poke()
    }

    /// Removes the lock file.
    func removeLockFile() throws {
        try place.remove()
        controller.poke()
    }

    /// The number of requests for a secret. Earlier requests to the lock controller are complete when it returns.
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

    /// Called by the lock controller's thread the next time that it has locked, and purged everything.
    func whenLocked(_ body: @escaping @Sendable () -> Void) {
        announcements.whenLocked.withLock { $0 = body }
    }

    /// The right secret.
    var key: LockController.SecretSource {
        { [masterKey = vault.masterKey] () throws(UnlockRefusal) in UnlockSecret(masterKey) }
    }

    /// The reply to `unlock`, when it comes.
    func unlock(_ key: LockController.SecretSource? = nil) -> Monitor<Result<Bool, UnlockRefusal>?> {
        let answer = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        controller.unlock(secret: key) { outcome in answer.update { $0 = outcome } }
        return answer
    }

    /// The reply to `lock`.
    func lock() throws -> (receipt: LockReceipt, already: Bool) {
        let answer = Monitor<(LockReceipt, Bool)?>(nil)
        controller.lock(.command) { receipt, already in answer.update { $0 = (receipt, already) } }
        let (receipt, already) = try answer.awaited()
        return (receipt, already)
    }
}

extension Monitor {
    /// Returns the value, if it comes.
    func awaited<Value>() throws -> Value where State == Value? {
        try #require(wait(until: .now + .seconds(20)) { $0 })
    }
}
