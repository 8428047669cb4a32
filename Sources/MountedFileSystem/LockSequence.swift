internal import BackingStore
internal import CLinux
internal import Glibc
internal import Logging
internal import Synchronization
internal import SystemPackage

/// The order in which a mount is locked; each step closes a race that the one before leaves open. Runs on the locker's
/// thread.
struct LockSequence {
    private let locker: Locker
    private var receipt: LockReceipt
    private let started = ContinuousClock.now
    private var fileSystem: any LockableFileSystem { locker.fileSystem }

    init(_ locker: Locker, reasons: [LockReason], policy: LockPolicy) {
        self.locker = locker
        receipt = LockReceipt(policy: policy)
        receipt.reasons = reasons
    }

    /// - Parameter everything: with the policy `forget`, also the keys that it leaves.
    mutating func run(forgettingEverything everything: Bool) -> LockReceipt {
        let writtenBack = fileSystem.counters.writtenBackBytes.total
        // From here on requests are refused, but for dirty mapped pages that come back.
        if fileSystem.gate.state == .unlocked { fileSystem.gate.enter(.locking) }
        // A late reply would fill a cache that has been purged.
        step("requests") { $0.fileSystem.gate.drain() }
        step("names") { $0.dropNames() }
        step("inodes") { $0.dropInodes() }
        if receipt.policy == .refuse { fileSystem.closeDirectories() }
        step("cache") { $0.receipt.cacheBytes = $0.fileSystem.cache.removeEverything() }
        step("workers") { sequence in
            for failure in sequence.locker.caches.wipeWorkers(waitingForAll: false) { sequence.receipt.fail(failure) }
        }
        fileSystem.gate.enter(.locked)
        receipt.purgeMilliseconds = Self.milliseconds(since: started)
        receipt.writtenBackBytes = fileSystem.counters.writtenBackBytes.total - writtenBack
        step("seal") { $0.seal() }
        // With a key that may be about to go.
        locker.lease?.noteTime()
        if receipt.policy == .forget { step("keys") { $0.forgetKeys(everything) } }
        receipt.totalMilliseconds = Self.milliseconds(since: started)
        return receipt
    }

    /// A file whose last handle was closed while its class is locked: no other is opened before the unlock.
    func purge(inode: UInt64, forgetKeys: () -> Void) {
        guard fileSystem.gate.state == .locked else { return }
        fileSystem.gate.drain()
        fileSystem.sealEverything()
        var failures = locker.caches.dropInodes([inode])
        _ = fileSystem.cache.removeEverything()
        if receipt.policy == .forget { forgetKeys() }
        failures += locker.caches.wipeWorkers(waitingForAll: true)
        if !failures.isEmpty {
            locker.logger.error("not purged after its last close: \(failures.joined(separator: "; "))")
        }
    }

    private mutating func step(_ name: String, _ body: (inout LockSequence) -> Void) {
        let begin = ContinuousClock.now
        body(&self)
        receipt.steps.append(.init(name: name, milliseconds: Self.milliseconds(since: begin)))
    }

    private mutating func dropNames() {
        let (method, failures) = locker.caches.dropNames { fileSystem.knownNames() }
        receipt.names = method
        for failure in failures { receipt.fail(failure) }
    }

    private mutating func dropInodes() {
        let inodes = fileSystem.inodesToDrop()
        receipt.inodes = inodes.count
        for failure in locker.caches.dropInodes(inodes) { receipt.fail(failure) }
    }

    private mutating func seal() {
        let before = fileSystem.counters.filesSealed.total
        fileSystem.sealEverything()
        receipt.filesSealed = fileSystem.counters.filesSealed.total - before
    }

    private mutating func forgetKeys(_ everything: Bool) {
        receipt.keysForgotten = fileSystem.forgetKeys(everything: everything)
        // Schedules of the keys that have just gone.
        for failure in locker.caches.wipeWorkers(waitingForAll: true) { receipt.fail(failure) }
        linux_scrub_stack()
    }

    private static func milliseconds(since instant: ContinuousClock.Instant) -> Double {
        let passed = (ContinuousClock.now - instant).components
        return Double(passed.seconds) * 1000 + (Double(passed.attoseconds) / 1e12).rounded() / 1000
    }
}
