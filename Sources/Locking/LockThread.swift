internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import Synchronization

/// The loop of a `LockController`'s thread: what locks, what unlocks (Manual/Locking.md, "What locks", "What unlocks").
struct LockThread {
    let controller: LockController
    var reasons: Set<LockReason> = []
    var limiter = UnlockLimiter()
    private var waiting: [LockController.LockReply] = []
    var areKeysForgotten = false
    /// Also those that other locks leave.
    var areAllKeysForgotten = false
    /// Whether it was told that only a secret is missing.
    private var isSecretWanted = false
    /// Whether the one that came could not be tried, or not be used.
    private var isSecretUnused = false
    var receipt: LockReceipt

    var gate: LockGate { controller.fileSystem.gate }
    var needsSecret: Bool { areKeysForgotten && controller.fileSystem.needsSecret }

    init(_ controller: LockController) {
        self.controller = controller
        receipt = LockReceipt(policy: controller.options.policy)
    }

    /// Before the first request: a vault may be locked when it is mounted.
    mutating func begin() {
        look()
        checkLease()
        guard !reasons.isEmpty else { return }
        gate.beLockedFromTheStart()
        lock()
    }

    /// Until the lock controller is stopped.
    mutating func run() {
        while true {
            let inbox = take()
            look()
            if let failure = inbox.watchFailure {
                controller.logger.error("lock files: \(failure): locked")
                reasons.insert(.lockDirectory)
            }
            if isIdle() { reasons.insert(.idle) }
            // That looks at the vault's store, for which a lock does not wait.
            let isAsked = inbox.jobs.contains(where: \.isLock)
            let isToLock = gate.state == .unlocked && (isAsked || !reasons.isEmpty)
            if !isToLock { checkLease() }
            for job in inbox.jobs { work(job) }
            settle()
            if isToLock {
                checkLease()
                settle()
            }
            watchLease()
            if inbox.isToNoteTime { noteTime() }
            if inbox.isStopping && controller.endInbox() { return }
        }
    }

    /// Waits for something to do.
    private func take() -> LockController.Inbox {
        let take: (inout LockController.Inbox) -> LockController.Inbox? = { inbox in
            guard
                inbox.isStopping || inbox.isPoked || inbox.isToNoteTime || !inbox.jobs.isEmpty
                    || inbox.watchFailure != nil
            else {
                return nil
            }
            // What comes after an unlock is there for it to see.
            let end = inbox.jobs.firstIndex(where: \.isUnlock).map { $0 + 1 } ?? inbox.jobs.endIndex
            var taken = inbox
            taken.jobs = Array(inbox.jobs[..<end])
            inbox = LockController.Inbox(jobs: Array(inbox.jobs[end...]), isStopping: inbox.isStopping)
            return taken
        }
        guard let idle = controller.options.idleMilliseconds, gate.state == .unlocked else {
            return controller.inbox.wait(for: take)
        }
        return controller.inbox.wait(until: deadline(after: idle), for: take) ?? LockController.Inbox()
    }

    /// CLOCK_MONOTONIC, so long after the last request.
    private func deadline(after milliseconds: Int) -> timespec {
        let time = gate.lastActivityMilliseconds + milliseconds
        return timespec(tv_sec: time / 1000, tv_nsec: time % 1000 * 1_000_000)
    }

    private func isIdle() -> Bool {
        guard let idle = controller.options.idleMilliseconds, gate.state == .unlocked else { return false }
        return monotonicMilliseconds() >= gate.lastActivityMilliseconds + idle
    }

    /// Brings the reasons up to what the lock files say. A directory that has gone stays a reason until an unlock takes
    /// what is there now for it.
    private mutating func look() {
        let states = controller.lockFileChecks?.states().filter { $0.state.isLocked } ?? []
        reasons.remove(.lockFile)
        for (_, state) in states {
            reasons.insert(state == .parentChanged ? .lockDirectory : .lockFile)
        }
        let seen = states.map { $0.file.describe($0.state) }
        controller.publish { $0.seen = seen }
        publishReasons()
    }

    /// An end of the lease is a reason until a secret unlocks that opens a slot still.
    private mutating func checkLease(graceEnd: Int? = nil) {
        if let lease = controller.lease, !reasons.contains(.expired), hasEnded(lease, graceEnd: graceEnd) {
            controller.logger.notice("the slot that opened the vault has expired: locked")
            reasons.insert(.expired)
        }
        gate.setExpired(reasons.contains(.expired))
        watchLease()
    }

    /// Where the store does not answer, what was known counts.
    /// - Parameter graceEnd: when the lock is due that waits, in milliseconds of CLOCK_MONOTONIC.
    private func hasEnded(_ lease: any LeaseKeeper, graceEnd: Int?) -> Bool {
        let hasEnded: Bool?
        if let graceEnd {
            // Once it is silent it is not asked at each sign again.
            hasEnded =
                controller.isStoreSilent
                ? nil
                : controller.boundedInGrace(milliseconds: graceEnd - monotonicMilliseconds()) { lease.hasEnded() }
        } else {
            hasEnded = controller.boundedUnlessLocking { lease.hasEnded() }
        }
        return hasEnded ?? lease.isOver
    }

    private func watchLease() {
        guard let lease = controller.lease else { return }
        let end = lease.end
        controller.watchLease(until: reasons.contains(.expired) ? nil : end)
        controller.publish { $0.leaseEnds = end.map { UtcTime.text(secondsSinceEpoch: $0.wall / 1000) } }
    }

    private func noteTime() {
        if gate.state == .unlocked {
            _ = controller.boundedUnlessLocking { [controller] in controller.lease?.noteTime() }
        }
        controller.noteTimeLater()
    }

    private mutating func work(_ job: LockController.Job) {
        switch job {
        case .lock(let reason, let reply):
            reasons.insert(reason)
            guard gate.state != .unlocked else { return waiting.append(reply) }
            publishReasons()
            reply(receipt, true)
        case .unlock(let secret, let reply):
            // A lock that was asked for before is not to be overtaken.
            settle()
            let outcome = Result { () throws(UnlockRefusal) in try unlock(secret) }
            publishReasons()
            reply(outcome)
            look()
        case .restore(let secret):
            settle()
            guard reasons.isEmpty else { return }
            do throws(UnlockRefusal) { _ = try unlock(secret) } catch {
                controller.logger.error("not unlocked with the secret asked for: \(error)")
                // A wrong one is not asked for again.
                if case .failed = error { isSecretUnused = true }
            }
            look()
        case .purge(let inode, let forgetKeys):
            LockSequence(controller, reasons: [], policy: areKeysForgotten ? .forget : .refuse)
                .purge(inode: inode, forgetKeys: forgetKeys)
        case .lockAgain:
            if gate.state == .locked { lock() }
            // Not before: who asks at once finds the store as it was.
            if isSecretUnused { isSecretWanted = false }
        }
    }

    /// Locks where there is a reason, unlocks where there is none any more and no key is missing.
    private mutating func settle() {
        while true {
            if !reasons.isEmpty && gate.state == .unlocked {
                guard waitForGrace() else { continue }
                lock()
            } else if reasons.contains(.expired) && gate.state == .locked && !areAllKeysForgotten {
                // Locked before by what leaves keys and classes.
                lock()
            } else if reasons.isEmpty && gate.state == .locked && !needsSecret && areKeysBack() {
                finishUnlock()
            } else {
                break
            }
            look()
        }
        publishReasons()
        for reply in waiting { reply(receipt, false) }
        waiting = []
        wantSecret()
    }

    /// Tells, once, that nothing but a secret is missing.
    private mutating func wantSecret() {
        let isWanted = reasons.isEmpty && gate.state == .locked && needsSecret
        if isWanted && !isSecretWanted {
            isSecretUnused = false
            controller.wantSecret()
        }
        isSecretWanted = isWanted
    }

    // MARK: Locking

    /// Announces the lock and lets programs finish. False where the reason has gone meanwhile.
    private mutating func waitForGrace() -> Bool {
        let grace = controller.options.graceMilliseconds
        announce(.willLock(sortedReasons, graceMilliseconds: grace))
        // What has ended goes on for nobody.
        guard grace > 0, !reasons.contains(.expired) else { return true }
        let end = monotonicMilliseconds() + grace
        let deadline = timespec(tv_sec: end / 1000, tv_nsec: end % 1000 * 1_000_000)
        let fileSystem = controller.fileSystem
        // Before the writers are counted.
        controller.isInGrace.store(true, ordering: .sequentiallyConsistent)
        defer { controller.isInGrace.store(false, ordering: .sequentiallyConsistent) }
        while fileSystem.writingHandles > 0 {
            let isOver = controller.inbox.wait(until: deadline) { inbox -> Bool? in
                if inbox.isStopping { return true }
                if inbox.isPoked {
                    inbox.isPoked = false
                    return false
                }
                return fileSystem.writingHandles == 0 ? true : nil
            }
            if isOver ?? true { break }
            checkLease(graceEnd: end)
            look()
            if reasons.contains(.expired) { break }
            if reasons.isEmpty {
                announce(.didUnlock)
                return false
            }
        }
        return true
    }

    private mutating func lock() {
        // An expired secret is not to open what it opened once.
        let hasExpired = reasons.contains(.expired)
        let policy = hasExpired ? .forget : controller.options.policy
        var sequence = LockSequence(controller, reasons: sortedReasons, policy: policy)
        receipt = sequence.run(forgettingEverything: hasExpired)
        areKeysForgotten = areKeysForgotten || policy == .forget
        areAllKeysForgotten = areAllKeysForgotten || hasExpired
        let receipt = receipt
        controller.publish {
            $0.since = UtcTime.now()
            $0.lastReceipt = receipt
            $0.locks += 1
        }
        if !receipt.complete {
            controller.logger.error("not purged: \(receipt.unpurged.joined(separator: "; "))")
        }
        announce(.didLock(receipt))
    }

    // MARK: What others see

    private var sortedReasons: [LockReason] { reasons.sorted { $0.rawValue < $1.rawValue } }

    /// Whoever is told may look at the status next, and is to find there what he was told.
    func announce(_ event: LockEvent) {
        publishReasons()
        controller.announce(event)
    }

    private func publishReasons() {
        let (reasons, needsSecret) = (sortedReasons, needsSecret)
        controller.publish {
            $0.reasons = reasons
            $0.needsSecret = needsSecret
        }
    }
}
