internal import CLinux
internal import FileSystem
internal import Glibc
internal import Logging

/// The steps of a lock, in order. Each closes a race that the one before leaves open. Runs on the lock thread.
struct LockSequence {
    private let controller: LockController
    private let policy: LockPolicy
    private var receipt: LockReceipt
    private let started = ContinuousClock.now
    /// True once a wait for the store has timed out.
    private var isStoreSilent = false
    /// True if making written data durable has timed out.
    private var isDurabilityUnknown = false
    /// The dropped inodes, each before the directory that contains it.
    private var inodes: [UInt64] = []
    /// Timeouts once the store has not answered, and for making written data durable.
    private static let silentStoreTimeoutMilliseconds = 1000
    private static let sealTimeoutMilliseconds = 60_000
    static let reason = ": the vault's store does not answer; that is done when it does"
    private static let unknown = "the vault's store does not answer, so it is not known what is durable"
    private var fileSystem: any LockableFileSystem { controller.fileSystem }

    init(_ controller: LockController, reasons: [LockReason], policy: LockPolicy) {
        (self.controller, self.policy) = (controller, policy)
        receipt = LockReceipt(policy: policy)
        receipt.reasons = reasons.map(\.rawValue)
    }

    /// - Parameter everything: true to forget, with the policy `forget`, also the keys that it usually leaves.
    mutating func run(forgettingEverything everything: Bool) -> LockReceipt {
        let writtenBack = fileSystem.counters.writtenBackBytes.total
        // From here on requests are refused, except for dirty mapped pages that the kernel writes back.
        if fileSystem.gate.state == .unlocked {
            fileSystem.gate.enter(.locking)
            fileSystem.beginArrivals()
        }
        // A late reply would fill a cache that has been purged.
        step("requests") { $0.waitForRequests() }
        step("names") { $0.dropNames() }
        step("inodes") { $0.dropInodes() }
        if policy == .refuse { fileSystem.closeDirectories() }
        step("cache") { $0.receipt.cacheBytes = $0.fileSystem.cache.removeEverything() }
        step("workers") { $0.wipeWorkers() }
        fileSystem.gate.enter(.locked)
        receipt.purgeMilliseconds = Self.milliseconds(since: started)
        receipt.writtenBackBytes = fileSystem.counters.writtenBackBytes.total - writtenBack
        step("free") { $0.freeInodes() }
        step("seal") { $0.seal() }
        if policy == .forget { step("keys") { $0.forgetKeys(everything) } }
        findMissing()
        if isStoreSilent { controller.lockAgainLater() }
        receipt.totalMilliseconds = Self.milliseconds(since: started)
        return receipt
    }

    /// Purges files whose last handles were closed while their class is locked. They are not opened again before the unlock.
    func purge(_ files: [LockController.ClosedFile]) {
        guard fileSystem.gate.state == .locked else { return }
        guard
            fileSystem.gate.drain(until: controller.storeDeadline) == 0,
            controller.bounded(
                until: .now + .milliseconds(Self.sealTimeoutMilliseconds),
                { [fileSystem] in fileSystem.sealClosed() }) != nil
        else { return controller.lockAgainLater() }
        let inodes = files.map(\.inode)
        var failures = controller.caches.dropInodes(inodes)
        failures += controller.caches.freeInodes(inodes)
        _ = fileSystem.cache.removeEverything()
        if policy == .forget { for file in files { file.forgetKeys() } }
        failures += controller.caches.wipeWorkers(waitingForAll: true)
        if !failures.isEmpty {
            controller.logger.error("not purged after its last close: \(failures.joined(separator: "; "))")
        }
    }

    // MARK: A store that does not answer

    /// Runs `body`, which may wait for the store, with a timeout that is short once the store has not answered. On a timeout
    /// returns nil and adds `unpurged` to the receipt.
    private mutating func bounded<Result: Sendable>(
        milliseconds: Int? = nil, as use: LockController.StoreUse = .other, _ unpurged: String?,
        _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        let timeout =
            isStoreSilent
            ? Self.silentStoreTimeoutMilliseconds : milliseconds ?? controller.options.storeTimeoutMilliseconds
        if let result = controller.bounded(until: .now + .milliseconds(timeout), as: use, body) { return result }
        isStoreSilent = true
        if let unpurged { receipt.fail(unpurged + Self.reason) }
        return nil
    }

    private mutating func waitForRequests() {
        // Work that an earlier lock or unlock began may still have keys.
        isStoreSilent = controller.isStoreSilent(afterMilliseconds: Self.silentStoreTimeoutMilliseconds)
        let left = fileSystem.gate.drain(until: controller.storeDeadline)
        guard left > 0 else { return }
        isStoreSilent = true
        receipt.fail("data of \(left) request\(left == 1 ? "" : "s") in progress" + Self.reason)
    }

    private mutating func step(_ name: String, _ body: (inout LockSequence) -> Void) {
        let begin = ContinuousClock.now
        body(&self)
        receipt.steps?.append(.init(name: name, milliseconds: Self.milliseconds(since: begin)))
    }

    private mutating func dropNames() {
        let drop = { @Sendable [controller, fileSystem] in controller.caches.dropNames { fileSystem.knownNames() } }
        guard let (method, failures) = bounded("the kernel's names", drop) else { return }
        receipt.names = method
        for failure in failures { receipt.fail(failure) }
    }

    private mutating func dropInodes() {
        let drop = { @Sendable [controller, fileSystem] in
            let inodes = fileSystem.inodesToDrop()
            return (inodes, controller.caches.dropInodes(inodes))
        }
        guard let (dropped, failures) = bounded("pages of open files", drop) else { return }
        inodes = dropped
        receipt.inodes = dropped.count
        for failure in failures { receipt.fail(failure) }
    }

    /// Frees inodes. This comes after the purge, because it takes longer. By then these inodes hold only names and
    /// attributes, which only root can reach.
    private mutating func freeInodes() {
        let failures = bounded("names and attributes of closed files") { @Sendable [controller, inodes] in
            controller.caches.freeInodes(inodes)
        }
        for failure in failures ?? [] { receipt.fail(failure) }
    }

    private mutating func wipeWorkers() {
        let failures = bounded(
            milliseconds: Self.sealTimeoutMilliseconds, "the buffers of threads",
            { @Sendable [controller] in controller.caches.wipeWorkers(waitingForAll: false) })
        for failure in failures ?? [] { receipt.fail(failure) }
    }

    private mutating func seal() {
        let before = fileSystem.counters.filesSealed.total
        // An unsealed file can be read too, so a timeout is no failure.
        let seal: Void? = bounded(milliseconds: Self.sealTimeoutMilliseconds, nil) { [controller, fileSystem] in
            fileSystem.sealEverything()
            // Needs a key that `forgetKeys` may wipe.
            controller.lease?.saveTime()
        }
        isDurabilityUnknown = seal == nil
        // After the keys are wiped, no file is sealed before the unlock. A silent store must not keep the keys, so this does not
        // count as a wait for it.
        if policy == .forget, !isStoreSilent, fileSystem.unsealedFiles.withKeys > 0 {
            _ = controller.bounded { [fileSystem] in fileSystem.sealClosed() }
        }
        receipt.filesSealed = fileSystem.counters.filesSealed.total - before
    }

    /// Finds out what is not durable. After the keys are wiped, because the store may not answer.
    private mutating func findMissing() {
        let timeout = isStoreSilent ? Self.silentStoreTimeoutMilliseconds : controller.options.storeTimeoutMilliseconds
        // An earlier one may still wait.
        let check: Void? =
            controller.isInProgress(.checking)
            ? nil
            : controller.bounded(until: .now + .milliseconds(timeout), as: .checking) { [fileSystem] in
                fileSystem.checkStore()
            }
        if check == nil { isStoreSilent = true }
        receipt.missingData =
            fileSystem.missingData + (check == nil || isDurabilityUnknown ? [Self.unknown] : [])
        let unsealed = fileSystem.unsealedFiles.withoutKeys
        guard unsealed > 0 else { return }
        receipt.missingData?.append(
            "the \(unsealed == 1 ? "length of a file" : "lengths of \(unsealed) files") could not be authenticated: unlock before "
                + "you unmount")
    }

    /// Wipes keys. Not while a request waits for the store, because it still uses its keys.
    private mutating func forgetKeys(_ everything: Bool) {
        guard !isStoreSilent else { return receipt.fail("keys" + Self.reason) }
        let forgotten = bounded(as: .wiping, "keys") { [fileSystem] in fileSystem.forgetKeys(everything: everything) }
        receipt.keysForgotten = forgotten ?? []
        // The workers may have schedules of these keys.
        for failure in controller.caches.wipeWorkers(waitingForAll: !isStoreSilent) { receipt.fail(failure) }
        linux_scrub_thread()
    }

    private static func milliseconds(since instant: ContinuousClock.Instant) -> Double {
        let passed = (ContinuousClock.now - instant).components
        return Double(passed.seconds) * 1000 + (Double(passed.attoseconds) / 1e12).rounded() / 1000
    }
}
