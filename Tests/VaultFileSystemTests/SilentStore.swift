import LinuxSystem
import Logging
import Synchronization
import Testing
import VaultCrypto

@testable import FileSystem
@testable import Locking
@testable import VaultFileSystem

/// A vault with a lock controller that waits a second for what the store does not answer. On a busy machine what does may take
/// longer, too: then a receipt that was to be complete is followed by another.
final class SilentStore {
    /// What a test does in the middle of something, once.
    typealias Hook = Mutex<(@Sendable () -> Void)?>

    /// Caches of no kernel, of which one waits for the store while `isHeld`.
    final class Caches: KernelCaches {
        let isHeld = Monitor(false)
        /// When the buffers of threads are wiped: after that a lock wipes the keys.
        let whenWiping = Hook(nil)

        func freeInodes(_ inodes: [UInt64]) -> [String] { [] }
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

    /// What the lock controller's thread does when it has locked.
    private final class Announcements: Sendable {
        let receipts = Monitor<[LockReceipt]>([])
        let whenLocked = Hook(nil)
    }

    let vault: MountedVault
    let caches = Caches()
    let controller: LockController
    private let place: LockPlace
    private let announcements = Announcements()
    /// Who wants a secret, each time anew.
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

    /// The next receipt that was announced.
    func next() throws -> LockReceipt {
        let next = announcements.receipts.wait(until: monotonicDeadline(in: 20)) { $0.isEmpty ? nil : $0.removeFirst() }
        return try #require(next)
    }

    /// The first complete receipt that is announced.
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

    /// Has a lock file come.
    func createLockFile() throws {
        try place.create()
        controller.poke()
    }

    /// And go.
    func removeLockFile() throws {
        try place.remove()
        controller.poke()
    }

    /// How often a secret was wanted. What was asked of the lock controller before is done then.
    func timesWanted() throws -> Int {
        _ = try unlock().awaited()
        return wanted.access { $0.count }
    }

    /// Gives a secret when one is wanted for the `count`th time.
    func give(_ count: Int, _ key: @escaping LockController.SecretSource) throws {
        let last = wanted.wait(until: monotonicDeadline(in: 20)) { $0.count == count ? $0.last : nil }
        let give = try #require(last)
        give(key)
    }

    /// Called by the lock controller's thread when it has locked the next time, and purged all.
    func whenLocked(_ body: @escaping @Sendable () -> Void) {
        announcements.whenLocked.withLock { $0 = body }
    }

    /// The right secret.
    var key: LockController.SecretSource {
        { [masterKey = vault.masterKey] () throws(UnlockRefusal) in UnlockSecret(masterKey) }
    }

    /// What `unlock` is answered, when it is.
    func unlock(_ key: LockController.SecretSource? = nil) -> Monitor<Result<Bool, UnlockRefusal>?> {
        let answer = Monitor<Result<Bool, UnlockRefusal>?>(nil)
        controller.unlock(secret: key) { outcome in answer.update { $0 = outcome } }
        return answer
    }

    /// What `lock` is answered.
    func lock() throws -> (receipt: LockReceipt, already: Bool) {
        let answer = Monitor<(LockReceipt, Bool)?>(nil)
        controller.lock(.command) { receipt, already in answer.update { $0 = (receipt, already) } }
        let (receipt, already) = try answer.awaited()
        return (receipt, already)
    }
}

extension Monitor {
    /// What comes, as far as it comes.
    func awaited<Value>() throws -> Value where State == Value? {
        try #require(wait(until: monotonicDeadline(in: 20)) { $0 })
    }
}
