internal import CLinux
internal import FileSystem
internal import Logging

/// The steps of a lock, in order. Each closes a race left open by the one before. Runs on the lock thread.
struct LockSequence {
    private let controller: LockController
    private let policy: LockPolicy
    private var receipt: LockReceipt
    private let started = ContinuousClock.now
    /// True once a wait for the store has timed out.
    private var isStoreSilent = false
    /// True if a program has not received its names in time.
    private var areNamesLeft = false
    /// True if making written data durable has timed out.
    private var isDurabilityUnknown = false
    /// The dropped inodes, each before the directory that contains it.
    private var inodes: [UInt64] = []
    /// The timeout once the store is silent.
    private static let silentStoreTimeoutMilliseconds = 1000
    /// The time for making written data durable, if the store goes on answering.
    private static let sealTimeout = Duration.seconds(60)
    static let reason = ": the vault's store does not answer; that is done when it does"
    private static let delayed = ": it gets no processor, or waits for the vault's store; that is done when it goes on"
    private static let unknown = "the vault's store does not answer, so it is not known what is durable"
    private var fileSystem: any LockableFileSystem { controller.fileSystem }

    init(_ controller: LockController, reasons: [LockReason], policy: LockPolicy) {
        (self.controller, self.policy) = (controller, policy)
        receipt = LockReceipt(policy: policy)
        receipt.reasons = reasons.map(\.rawValue)
    }

    /// - Parameter everything: true to forget, with the policy `forget`, also the usually remaining keys.
    mutating func run(forgettingEverything everything: Bool) -> LockReceipt {
        let writtenBack = fileSystem.counters.writtenBackBytes.total
        // From here on requests are refused, except for dirty mapped pages that the kernel writes back.
        switch fileSystem.gate.state {
        case .unlocked, .reopening:
            fileSystem.gate.enter(.locking)
            fileSystem.beginArrivals()
        // An earlier unlock could not be finished.
        case .opening: fileSystem.gate.enter(.locking)
        case .locking, .locked: break
        }
        // Wait for the requests first, because a late reply would fill a purged cache.
        step("requests") { $0.waitForRequests() }
        step("names") { $0.dropNames() }
        step("inodes") { $0.dropInodes() }
        step("cache") { $0.receipt.cacheBytes = $0.fileSystem.cache.removeEverything() }
        step("workers") { $0.wipeWorkers() }
        fileSystem.gate.enter(.locked)
        receipt.purgeMilliseconds = Self.milliseconds(since: started)
        receipt.writtenBackBytes = fileSystem.counters.writtenBackBytes.total - writtenBack
        step("free") { $0.freeInodes() }
        step("seal") { $0.seal() }
        if policy == .forget { step("keys") { $0.forgetKeys(everything) } }
        awaitWipedWorkers()
        findMissing()
        if isStoreSilent || areNamesLeft { controller.lockAgainLater() }
        receipt.totalMilliseconds = Self.milliseconds(since: started)
        return receipt
    }

    /// Purges files whose last handles were closed while their class is locked. They stay closed until the unlock.
    func purge(_ files: [LockController.ClosedFile]) {
        guard fileSystem.gate.state == .locked else { return }
        guard
            fileSystem.gate.drain(until: controller.storeDeadline) == 0,
            controller.bounded({ [fileSystem] in fileSystem.sealClosed() }) != nil
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

    /// The timeout of a step that may wait for the store, short once the store is silent.
    private var timeout: Duration {
        .milliseconds(
            isStoreSilent ? Self.silentStoreTimeoutMilliseconds : controller.options.storeTimeoutMilliseconds)
    }

    /// Runs `body`, which may wait for the store, until the timeout. Then returns nil and adds `unpurged` to the
    /// receipt.
    /// - Parameter progress: returns a number that grows while the store answers. Each growth begins the timeout again.
    private mutating func bounded<Result: Sendable>(
        as use: LockController.StoreUse = .other, _ unpurged: String?, progress: () -> UInt64 = { 0 },
        _ body: @escaping @Sendable () -> Result
    ) -> Result? {
        let end = ContinuousClock.now + Self.sealTimeout
        let task = controller.begin(as: use, body)
        var reached: UInt64
        repeat {
            reached = progress()
            if let result = task.wait(until: .now + timeout) { return result }
        } while progress() != reached && .now < end
        isStoreSilent = true
        if let unpurged { receipt.fail(unpurged + Self.reason) }
        return nil
    }

    private mutating func waitForRequests() {
        // The work of an earlier lock or unlock may still have keys.
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
        // Names are dropped once the programs have received their replies. One of them may get no processor time, but
        // the keys must still be wiped.
        let task = controller.begin(as: .naming) { [controller, fileSystem] in
            controller.caches.dropNames { fileSystem.knownNames() }
        }
        guard let (method, failures) = task.wait(until: .now + timeout) else {
            areNamesLeft = true
            return receipt.fail("names that a program is receiving" + Self.delayed)
        }
        receipt.names = method
        for failure in failures { receipt.fail(failure) }
    }

    private mutating func dropInodes() {
        let isToClose = policy == .refuse
        let drop = { @Sendable [controller, fileSystem] in
            let inodes = fileSystem.inodesToDrop()
            let failures = controller.caches.dropInodes(inodes)
            if isToClose { fileSystem.closeDirectories() }
            return (inodes, failures)
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
        let failures = bounded(nil) { @Sendable [controller] in controller.caches.wipeWorkers(waitingForAll: false) }
        for failure in failures ?? ["the buffers of a thread" + Self.delayed] { receipt.fail(failure) }
    }

    /// Waits for the workers left by `wipeWorkers` in fsync(2) or the like, because their buffers may hold plaintext of
    /// an earlier request. It comes last, because the seals have waited for the same disk, so usually all have wiped.
    private mutating func awaitWipedWorkers() {
        let left = controller.caches.awaitWipedWorkers(until: .now + timeout)
        guard left > 0 else { return }
        isStoreSilent = true
        receipt.fail("the buffers of a thread" + (left > 1 ? " and \(left - 1) more" : "") + Self.delayed)
    }

    private mutating func seal() {
        let before = fileSystem.counters.filesSealed.total
        // An unsealed file can be read too, so a timeout is no failure.
        let progress = { [fileSystem] in fileSystem.counters.filesSealed.total }
        let seal: Void? = bounded(nil, progress: progress) { [controller, fileSystem] in
            fileSystem.sealEverything()
            // Save the time now, because it needs a key that `forgetKeys` may wipe.
            controller.lease?.saveTime()
        }
        isDurabilityUnknown = seal == nil
        // Once the keys are wiped, files stay unsealed until the unlock, so put them in place now. A silent store must
        // not keep the keys, so this does not count as a wait for it.
        if policy == .forget, !isStoreSilent, fileSystem.unsealedFiles.withKeys > 0 {
            _ = controller.bounded { [fileSystem] in fileSystem.sealClosed() }
        }
        receipt.filesSealed = fileSystem.counters.filesSealed.total - before
    }

    /// Finds out what is not durable, after the keys are wiped, because the store may not answer.
    private mutating func findMissing() {
        // An earlier check may still wait.
        let check: Void? =
            controller.isInProgress(.checking)
            ? nil
            : controller.bounded(until: .now + timeout, as: .checking) { [fileSystem] in
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

    /// Wipes keys, unless a request waits for the store, because it still uses its keys.
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
