internal import FileSystem
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// The loop of a `LockController`'s thread. It decides when to lock and to unlock (Manual/Locking.md).
struct LockThread {
    let controller: LockController
    private var reasons: Set<LockReason> = []
    private var limiter = UnlockLimiter()
    private var waiting: [LockController.LockReply] = []
    /// The keys wiped so far. Each case includes the ones before it.
    enum Keys: Int {
        case present
        case forgotten
        /// Also the keys that other locks leave are wiped, after the end of a lease.
        case ended
    }

    /// The state of a secret, if an unlock lacks nothing else.
    enum MissingSecret {
        case none
        /// `secretWanted` was called.
        case wanted
        /// The given secret could not be tried or used.
        case failed
    }

    private var keys = Keys.present
    private var missing = MissingSecret.none
    /// True if this lock forgets the keys in spite of the mount's policy.
    private var isToForget = false
    private var receipt: LockReceipt

    var gate: LockGate { controller.fileSystem.gate }
    var needsSecret: Bool { keys != .present && controller.fileSystem.needsSecret }

    init(_ controller: LockController) {
        self.controller = controller
        receipt = LockReceipt(policy: controller.options.policy)
    }

    /// Locks at the mount if there is a reason. Call it before the first request.
    mutating func begin() {
        checkLockFiles()
        checkLease()
        guard !reasons.isEmpty else { return }
        gate.beLockedFromTheStart()
        lock()
    }

    /// Runs until `stop`.
    mutating func run() {
        while true {
            let queue = awaitWork()
            checkLockFiles()
            if let failure = queue.watchFailure {
                controller.logger.error("lock files: \(failure): locked")
                reasons.insert(.lockDirectory)
            }
            if isIdle() { reasons.insert(.idle) }
            // `checkLease` reads the vault, and a lock must not wait for this.
            let isAsked = queue.jobs.contains(where: \.isLock)
            let isToLock = gate.state == .unlocked && (isAsked || !reasons.isEmpty)
            if !isToLock { checkLease() }
            for job in queue.jobs { work(job) }
            lockOrUnlock()
            if isToLock {
                checkLease()
                lockOrUnlock()
            }
            watchLease()
            if queue.isToSaveTime { saveTime() }
            if queue.isStopping && controller.endQueue() { return }
        }
    }

    /// Waits for work, and removes it from the queue.
    private func awaitWork() -> LockController.Queue {
        let remove: (inout LockController.Queue) -> LockController.Queue? = { queue in
            guard
                queue.isStopping || queue.isPoked || queue.isToSaveTime || !queue.jobs.isEmpty
                    || queue.watchFailure != nil
            else {
                return nil
            }
            // Leave jobs after an unlock in the queue, where the unlock finds a lock requested meanwhile.
            let end = queue.jobs.firstIndex(where: \.isUnlock).map { $0 + 1 } ?? queue.jobs.endIndex
            var removed = queue
            removed.jobs = Array(queue.jobs[..<end])
            queue = LockController.Queue(jobs: Array(queue.jobs[end...]), isStopping: queue.isStopping)
            return removed
        }
        guard let idle = controller.options.idleMilliseconds, gate.state == .unlocked else {
            return controller.queue.wait(for: remove)
        }
        let left = gate.lastActivityMilliseconds + idle - monotonicMilliseconds()
        return controller.queue.wait(until: .now + .milliseconds(left), for: remove)
            ?? LockController.Queue()
    }

    private func isIdle() -> Bool {
        guard let idle = controller.options.idleMilliseconds, gate.state == .unlocked else { return false }
        return monotonicMilliseconds() >= gate.lastActivityMilliseconds + idle
    }

    /// Updates the reasons from the lock files. A changed directory stays a reason until an unlock accepts the current
    /// one.
    private mutating func checkLockFiles() {
        let states = gate.lockingFiles()
        reasons.remove(.lockFile)
        for (_, state) in states { reasons.insert(state == .parentChanged ? .lockDirectory : .lockFile) }
        let seen = states.map { $0.file.describe($0.state) }
        controller.publish { $0.seen = seen }
        publishReasons()
    }

    /// Adds the end of the lease to the reasons. It stays until a secret opens an unexpired slot.
    private mutating func checkLease(graceEnd: ContinuousClock.Instant? = nil) {
        if let lease = controller.lease, !reasons.contains(.expired), hasEnded(lease, graceEnd: graceEnd) {
            controller.logger.notice("the slot that opened the vault has expired: locked")
            reasons.insert(.expired)
        }
        gate.setExpired(reasons.contains(.expired))
        watchLease()
    }

    /// Returns true if the lease has ended. If the store does not answer, the last known state counts.
    /// - Parameter graceEnd: the end of the current grace.
    private func hasEnded(_ lease: any LeaseKeeper, graceEnd: ContinuousClock.Instant?) -> Bool {
        guard let graceEnd else {
            return controller.bounded(unless: controller.asksToLock) { lease.hasEnded() } ?? lease.isOver
        }
        // Do not ask a silent store again at each event.
        if controller.isStoreSilent() { return lease.isOver }
        let fileSystem = controller.fileSystem
        let hasEnded = controller.bounded(
            until: min(graceEnd, controller.storeDeadline),
            unless: { $0.isStopping || fileSystem.writingHandles == 0 }, { lease.hasEnded() })
        return hasEnded ?? lease.isOver
    }

    private func watchLease() {
        guard let lease = controller.lease else { return }
        let end = lease.end
        controller.watchLease(until: reasons.contains(.expired) ? nil : end)
        controller.publish { $0.leaseEnds = end.map { UtcTime.text(secondsSinceEpoch: $0.wall / 1000) } }
    }

    private func saveTime() {
        if gate.state == .unlocked {
            _ = controller.bounded(unless: controller.asksToLock) { [controller] in controller.lease?.saveTime() }
        }
        controller.saveTimeAtNextUse()
    }

    private mutating func work(_ job: LockController.Job) {
        switch job {
        case .lock(let reason, let forgetsKeys, let reply):
            reasons.insert(reason)
            isToForget = isToForget || forgetsKeys
            guard gate.state != .unlocked else { return waiting.append(reply) }
            let hasKeys = forgetsKeys && keys == .present
            if hasKeys { lock() }
            publishReasons()
            reply(receipt, !hasKeys)
        case .unlock(let secret, let reply):
            // Finish a lock that was requested before.
            lockOrUnlock()
            let outcome = Result { () throws(UnlockRefusal) in try unlock(secret) }
            publishReasons()
            reply(outcome)
            checkLockFiles()
        case .restore(let secret):
            lockOrUnlock()
            guard reasons.isEmpty else { return }
            do throws(UnlockRefusal) { _ = try unlock(secret) } catch {
                controller.logger.error("not unlocked with the secret asked for: \(error)")
                // Do not ask again after a wrong secret.
                if case .failed = error, missing == .wanted { missing = .failed }
            }
            checkLockFiles()
        case .purge(let files):
            LockSequence(controller, reasons: [], policy: keys == .present ? .refuse : .forget).purge(files)
        case .lockAgain:
            if gate.state == .locked { lock() }
            // Reset this only now, because earlier the store would still not answer.
            if missing == .failed { missing = .none }
        }
    }

    /// Locks if there is a reason. Unlocks if there is none and the secret is not missing.
    private mutating func lockOrUnlock() {
        while true {
            if !reasons.isEmpty && gate.state == .unlocked {
                guard waitForGrace() else { continue }
                lock()
            } else if reasons.contains(.expired) && gate.state == .locked && keys != .ended {
                // An earlier lock has left keys and classes.
                lock()
            } else if reasons.isEmpty && gate.state == .locked && !needsSecret && areKeysBack() && finishUnlock() {
            } else {
                break
            }
            checkLockFiles()
        }
        // A lock file removed before this thread saw it has only made requests fail, so open the gate again.
        if gate.state == .unlocked, !gate.refusesForNothing() || openGate() { controller.fileSystem.endArrivals() }
        publishReasons()
        for reply in waiting { reply(receipt, false) }
        waiting = []
        wantSecret()
    }

    /// Requests a secret, once, if an unlock lacks nothing else.
    private mutating func wantSecret() {
        guard reasons.isEmpty, gate.state == .locked, needsSecret else {
            missing = .none
            return
        }
        guard missing == .none else { return }
        missing = .wanted
        controller.wantSecret()
    }

    // MARK: Locking

    /// Announces the lock and waits for the grace. Returns false if the reasons have ended meanwhile.
    private mutating func waitForGrace() -> Bool {
        let grace = controller.options.graceMilliseconds
        announce(.willLock(sortedReasons, graceMilliseconds: grace))
        // The end of a lease has no grace.
        guard grace > 0, !reasons.contains(.expired) else { return true }
        let deadline = ContinuousClock.now + .milliseconds(grace)
        let fileSystem = controller.fileSystem
        // Set this before counting the writers, so that the last close is not missed.
        controller.isInGrace.store(true, ordering: .sequentiallyConsistent)
        defer { controller.isInGrace.store(false, ordering: .sequentiallyConsistent) }
        while fileSystem.writingHandles > 0 {
            let isOver = controller.queue.wait(until: deadline) { queue -> Bool? in
                if queue.isStopping { return true }
                if queue.isPoked {
                    queue.isPoked = false
                    return false
                }
                return fileSystem.writingHandles == 0 ? true : nil
            }
            if isOver ?? true { break }
            checkLease(graceEnd: deadline)
            checkLockFiles()
            if reasons.contains(.expired) { break }
            if reasons.isEmpty {
                announce(.didUnlock)
                return false
            }
        }
        return true
    }

    private mutating func lock() {
        // After the end of a lease its secret must not give access again.
        let hasExpired = reasons.contains(.expired)
        let policy = hasExpired || isToForget ? .forget : controller.options.policy
        var sequence = LockSequence(controller, reasons: sortedReasons, policy: policy)
        receipt = sequence.run(forgettingEverything: hasExpired)
        let forgotten = hasExpired ? Keys.ended : policy == .forget ? .forgotten : .present
        if forgotten.rawValue > keys.rawValue { keys = forgotten }
        receipt.needsSecret = needsSecret
        let receipt = receipt
        controller.publish {
            $0.since = UtcTime.now()
            $0.lastReceipt = receipt
            $0.locks = ($0.locks ?? 0) + 1
        }
        if !receipt.complete {
            controller.logger.error("not purged: \(receipt.unpurged.joined(separator: "; "))")
        }
        announce(.didLock(receipt))
    }

    // MARK: Status and events

    private var sortedReasons: [LockReason] { reasons.sorted { $0.rawValue < $1.rawValue } }

    /// Announces an event, after updating the status that its receivers may read next.
    func announce(_ event: LockEvent) {
        publishReasons()
        controller.announce(event)
    }

    private func publishReasons() {
        let (reasons, needsSecret) = (sortedReasons, needsSecret)
        controller.publish {
            $0.reasons = reasons.map(\.rawValue)
            $0.needsSecret = needsSecret
        }
    }
}

extension LockThread {
    /// The time for reading the slots and trying a secret on them.
    private static let unlockTimeoutMilliseconds = 120_000
    private static let overtaken = "a lock was asked for meanwhile"

    /// Unlocks. Returns true if the vault was already unlocked.
    mutating func unlock(_ secret: LockController.SecretSource?) throws(UnlockRefusal) -> Bool {
        if gate.state == .unlocked { return true }
        try refuseWhileBusy()
        // Check this before `rearm`, so that a missing secret changes nothing.
        try refuse { $0 != .parentChanged }
        if needsSecret && secret == nil { throw .secretNeeded }
        try rearm()
        try refuse { _ in true }
        if let secret, needsSecret { try restoreKeys(secret) }
        try restoreKeys()
        reasons = []
        guard finishUnlock() else { throw .failed("the kernel still has pages of writes that were refused: try again") }
        return false
    }

    /// Throws if a lock file prevents an unlock.
    private func refuse(where isAgainst: (LockFileState) -> Bool) throws(UnlockRefusal) {
        let seen = gate.lockingFiles().filter { isAgainst($0.state) }
        guard let first = seen.first else { return }
        throw .lockFile(seen.map { $0.file.path.string }, reason: first.file.describe(first.state))
    }

    /// Accepts the current directories as those of the lock files.
    private mutating func rearm() throws(UnlockRefusal) {
        guard reasons.contains(.lockDirectory) else { return }
        for file in controller.options.lockFiles {
            do throws(LockFileError) { try file.rearm() } catch {
                throw .lockFile([file.path.string], reason: error.description)
            }
        }
        reasons.remove(.lockDirectory)
    }

    private mutating func restoreKeys(_ source: @escaping LockController.SecretSource) throws(UnlockRefusal) {
        let wait = limiter.wait(at: .now)
        guard wait == 0 else { throw .tooManyTries(seconds: wait) }
        let secret: UnlockSecret
        do throws(UnlockRefusal) {
            secret = try withinTimeout(source)
        } catch {
            if case .wrongSecret = error { limiter.failed(at: .now) }
            throw error
        }
        limiter.succeeded()
        // Getting the secret may have taken a while.
        guard !controller.isToLock else { throw .failed(Self.overtaken) }
        try restore(secret.bytes)
        secret.whenRestored()
        keys = .present
    }

    /// Restores keys without a secret. This can fail, for example if a key file is missing.
    private mutating func restoreKeys() throws(UnlockRefusal) {
        guard keys != .present else { return }
        try refuseWhileBusy()
        try restore(nil)
        keys = .present
    }

    private mutating func restore(_ secret: SecretBytes?) throws(UnlockRefusal) {
        let fileSystem = controller.fileSystem
        try withinTimeout { () throws(UnlockRefusal) in try fileSystem.restoreKeys(secret) }
    }

    /// Runs `body`, which reads the store. After a timeout, or if a lock was requested meanwhile, `body` may still
    /// restore keys. The receipt reports this until another lock has wiped them.
    private mutating func withinTimeout<Value: Sendable>(
        _ body: @escaping @Sendable () throws(UnlockRefusal) -> Value
    ) throws(UnlockRefusal) -> Value {
        let result = controller.boundedUnlocking(milliseconds: Self.unlockTimeoutMilliseconds) {
            Result { () throws(UnlockRefusal) in try body() }
        }
        if let result { return try result.get() }
        receipt.fail("keys of an unlock that was given up" + LockSequence.reason)
        let receipt = receipt
        controller.publish { $0.lastReceipt = receipt }
        controller.lockAgainLater()
        throw .failed(controller.isToLock ? Self.overtaken : "the vault's store does not answer")
    }

    /// Throws while an earlier lock or unlock still wipes or restores keys.
    private func refuseWhileBusy() throws(UnlockRefusal) {
        if controller.isInProgress(.wiping) {
            throw .failed("the vault's store does not answer: its keys are still being wiped")
        }
        if controller.isInProgress(.unlocking) {
            throw .failed("the vault's store does not answer: an earlier unlock that was given up has not ended")
        }
    }

    /// Calls `restoreKeys`, and logs its error. Returns true if it has succeeded.
    private mutating func areKeysBack() -> Bool {
        do throws(UnlockRefusal) { try restoreKeys() } catch {
            controller.logger.error("not unlocked: \(error)")
            return false
        }
        return true
    }

    /// Makes the kernel find directories again after it was refused their lookups.
    private func attachDirectories() {
        let isAll = receipt.names == "invalidated"
        let paths = controller.bounded(unless: controller.asksToLock) { [fileSystem = controller.fileSystem] in
            fileSystem.detachedDirectories(all: isAll)
        }
        // If the store does not answer, programs find their directories at their next lookup.
        guard let paths else { return }
        let isDone = controller.caches.lookUp(paths) { [controller] in !controller.isToLock }
        if isDone { controller.fileSystem.attachedDirectories() }
    }

    /// Lets requests pass, at first only writes. New writes then leave no pages in the kernel while those of refused
    /// writes are dropped. If this takes too long, locks again and returns false.
    private mutating func openGate() -> Bool {
        gate.enter(gate.state == .unlocked ? .reopening : .opening)
        let failures = controller.bounded { [caches = controller.caches] in caches.dropUnwritten() }
        if failures?.isEmpty == true {
            gate.setExpired(false)
            gate.enter(.unlocked)
            return true
        }
        let reason = failures?.joined(separator: "; ") ?? "no answer in time"
        controller.logger.error("not unlocked: the pages of refused writes are not dropped: \(reason)")
        lock()
        return false
    }

    /// Opens the gate and announces the unlock. Returns false if the mount stays locked.
    private mutating func finishUnlock() -> Bool {
        announce(.willUnlock)
        guard openGate() else { return false }
        isToForget = false
        gate.markActivity()
        controller.fileSystem.endArrivals()
        controller.publish { $0.since = UtcTime.now() }
        attachDirectories()
        announce(.didUnlock)
        return true
    }
}
