internal import BackingStore
internal import Glibc
internal import LockFiles
internal import Logging
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto

/// The loop of a `Locker`'s thread: what locks, what unlocks (Manual/Locking.md, "What locks", "What unlocks").
struct LockerLoop {
    private let locker: Locker
    private var reasons: Set<LockReason> = []
    private var limiter = UnlockLimiter()
    private var waiting: [Locker.LockReply] = []
    private var areKeysForgotten = false
    private var receipt: LockReceipt

    private var gate: LockGate { locker.fileSystem.gate }
    private var needsSecret: Bool { areKeysForgotten && locker.fileSystem.needsSecret }

    init(_ locker: Locker) {
        self.locker = locker
        receipt = LockReceipt(policy: locker.options.policy)
    }

    /// Before the first request: a vault may be locked when it is mounted.
    mutating func begin() {
        look()
        checkLease()
        guard !reasons.isEmpty else { return }
        gate.beLockedFromTheStart()
        lock()
    }

    /// Until the locker is stopped.
    mutating func run() {
        while true {
            let inbox = take()
            look()
            if let failure = inbox.watchFailure {
                locker.logger.error("lock files: \(failure): locked")
                reasons.insert(.lockDirectory)
            }
            if isIdle() { reasons.insert(.idle) }
            checkLease()
            if inbox.isToNoteTime { noteTime() }
            for job in inbox.jobs { work(job) }
            settle()
            watchLease()
            if inbox.isStopping { return }
        }
    }

    /// Waits for something to do.
    private func take() -> Locker.Inbox {
        let take: (inout Locker.Inbox) -> Locker.Inbox? = { inbox in
            guard
                inbox.isStopping || inbox.isPoked || inbox.isToNoteTime || !inbox.jobs.isEmpty
                    || inbox.watchFailure != nil
            else {
                return nil
            }
            defer { inbox = Locker.Inbox(isStopping: inbox.isStopping) }
            return inbox
        }
        guard let idle = locker.options.idleMilliseconds, gate.state == .unlocked else {
            return locker.inbox.wait(for: take)
        }
        return locker.inbox.wait(until: deadline(after: idle), for: take) ?? Locker.Inbox()
    }

    /// CLOCK_MONOTONIC, so long after the last request.
    private func deadline(after milliseconds: Int) -> timespec {
        let time = gate.lastActivityMilliseconds + milliseconds
        return timespec(tv_sec: time / 1000, tv_nsec: time % 1000 * 1_000_000)
    }

    private func isIdle() -> Bool {
        guard let idle = locker.options.idleMilliseconds, gate.state == .unlocked else { return false }
        return monotonicMilliseconds() >= gate.lastActivityMilliseconds + idle
    }

    /// Brings the reasons up to what the lock files say. A directory that has gone stays a reason until an unlock takes
    /// what is there now for it.
    private mutating func look() {
        let sightings = locker.signs?.sightings().filter { $0.sighting.isLocked } ?? []
        reasons.remove(.lockFile)
        for (_, sighting) in sightings {
            reasons.insert(sighting == .parentChanged ? .lockDirectory : .lockFile)
        }
        let seen = sightings.map { $0.file.describe($0.sighting) }
        let reasons = reasons.sorted { $0.rawValue < $1.rawValue }
        locker.publish {
            $0.seen = seen
            $0.reasons = reasons
        }
    }

    /// An end of the lease is a reason until a secret unlocks that opens a slot still.
    private mutating func checkLease() {
        if let lease = locker.lease, !reasons.contains(.expired), lease.hasEnded() {
            locker.logger.notice("the slot that opened the vault has expired: locked")
            reasons.insert(.expired)
        }
        gate.setExpired(reasons.contains(.expired))
        watchLease()
    }

    private func watchLease() {
        guard let lease = locker.lease else { return }
        let end = lease.end
        locker.watchLease(until: reasons.contains(.expired) ? nil : end)
        locker.publish { $0.leaseEnds = end.map { UtcTime.text(secondsSinceEpoch: $0.wall / 1000) } }
    }

    private func noteTime() {
        if gate.state == .unlocked { locker.lease?.noteTime() }
        locker.noteTimeLater()
    }

    private mutating func work(_ job: Locker.Job) {
        switch job {
        case .lock(let reason, let reply):
            reasons.insert(reason)
            if gate.state == .unlocked { waiting.append(reply) } else { reply(receipt, true) }
        case .unlock(let secret, let reply):
            // A lock that was asked for before is not to be overtaken.
            settle()
            reply(Result { () throws(UnlockRefusal) in try unlock(secret) })
            look()
        case .purge(let inode, let forgetKeys):
            LockSequence(locker, reasons: [], policy: areKeysForgotten ? .forget : .refuse)
                .purge(inode: inode, forgetKeys: forgetKeys)
        }
    }

    /// Locks where there is a reason, unlocks where there is none any more and no key is missing.
    private mutating func settle() {
        while true {
            if !reasons.isEmpty && gate.state == .unlocked {
                guard waitForGrace() else { continue }
                lock()
            } else if reasons.contains(.expired) && gate.state == .locked && !areKeysForgotten {
                // Locked before by what leaves the keys.
                lock()
            } else if reasons.isEmpty && gate.state == .locked && !needsSecret && areKeysBack() {
                finishUnlock()
            } else {
                break
            }
            look()
        }
        for reply in waiting { reply(receipt, false) }
        waiting = []
        let (reasons, needsSecret) = (reasons.sorted { $0.rawValue < $1.rawValue }, needsSecret)
        locker.publish {
            $0.reasons = reasons
            $0.needsSecret = needsSecret
        }
    }

    // MARK: Locking

    /// Announces the lock and lets programs finish. False where the reason has gone meanwhile.
    private mutating func waitForGrace() -> Bool {
        let grace = locker.options.graceMilliseconds
        locker.announce(.willLock(reasons.sorted { $0.rawValue < $1.rawValue }, graceMilliseconds: grace))
        // What has ended goes on for nobody.
        guard grace > 0, !reasons.contains(.expired) else { return true }
        let end = monotonicMilliseconds() + grace
        let deadline = timespec(tv_sec: end / 1000, tv_nsec: end % 1000 * 1_000_000)
        let fileSystem = locker.fileSystem
        // Before the writers are counted.
        locker.isInGrace.store(true, ordering: .sequentiallyConsistent)
        defer { locker.isInGrace.store(false, ordering: .sequentiallyConsistent) }
        while fileSystem.writingHandles > 0 {
            let isOver = locker.inbox.wait(until: deadline) { inbox -> Bool? in
                if inbox.isStopping { return true }
                if inbox.isPoked {
                    inbox.isPoked = false
                    return false
                }
                return fileSystem.writingHandles == 0 ? true : nil
            }
            if isOver ?? true { break }
            look()
            checkLease()
            if reasons.contains(.expired) { break }
            if reasons.isEmpty {
                locker.announce(.didUnlock)
                return false
            }
        }
        return true
    }

    private mutating func lock() {
        // An expired secret is not to open what it opened once.
        let policy = reasons.contains(.expired) ? .forget : locker.options.policy
        var sequence = LockSequence(
            locker, reasons: reasons.sorted { $0.rawValue < $1.rawValue }, policy: policy)
        receipt = sequence.run()
        areKeysForgotten = areKeysForgotten || policy == .forget
        let (receipt, needsSecret) = (receipt, needsSecret)
        locker.publish {
            $0.since = UtcTime.now()
            $0.lastReceipt = receipt
            $0.needsSecret = needsSecret
            $0.locks += 1
        }
        if !receipt.complete {
            locker.logger.error("not purged: \(receipt.unpurged.joined(separator: "; "))")
        }
        locker.announce(.didLock(receipt))
    }

    // MARK: Unlocking

    /// Returns whether there was nothing to unlock.
    private mutating func unlock(_ secret: Locker.SecretSource?) throws(UnlockRefusal) -> Bool {
        if gate.state == .unlocked { return true }
        // Without a secret that is needed nothing changes: no directory is taken for another one.
        try refuse(where: { $0.isLocked && $0 != .parentChanged })
        if needsSecret && secret == nil { throw .secretNeeded }
        try rearm()
        try refuse(where: \.isLocked)
        if let secret, needsSecret { try restoreKeys(secret) }
        try restoreKeys()
        reasons = []
        finishUnlock()
        return false
    }

    /// Names the lock files that stand against an unlock.
    private func refuse(where isAgainst: (Sighting) -> Bool) throws(UnlockRefusal) {
        let seen = locker.signs?.sightings().filter { isAgainst($0.sighting) } ?? []
        guard let first = seen.first else { return }
        throw .lockFile(seen.map { $0.file.path.string }, reason: first.file.describe(first.sighting))
    }

    /// Takes the directories that are there now for those of the lock files.
    private mutating func rearm() throws(UnlockRefusal) {
        guard reasons.contains(.lockDirectory) else { return }
        for file in locker.options.lockFiles {
            do throws(LockFileError) { try file.rearm() } catch {
                throw .lockFile([file.path.string], reason: error.description)
            }
        }
        reasons.remove(.lockDirectory)
    }

    private mutating func restoreKeys(_ source: Locker.SecretSource) throws(UnlockRefusal) {
        let wait = limiter.wait(at: .now)
        guard wait == 0 else { throw .tooManyTries(seconds: wait) }
        let secret: UnlockSecret
        do throws(UnlockRefusal) { secret = try source() } catch {
            if case .wrongSecret = error { limiter.failed(at: .now) }
            throw error
        }
        limiter.succeeded()
        try locker.fileSystem.restoreKeys(secret.bytes)
        secret.whenRestored()
        areKeysForgotten = false
    }

    /// Those that take no secret: a key file may have gone.
    private mutating func restoreKeys() throws(UnlockRefusal) {
        guard areKeysForgotten else { return }
        try locker.fileSystem.restoreKeys(nil)
        areKeysForgotten = false
    }

    /// The same where nobody waits to be told.
    private mutating func areKeysBack() -> Bool {
        do throws(UnlockRefusal) { try restoreKeys() } catch {
            locker.logger.error("not unlocked: \(error)")
            return false
        }
        return true
    }

    /// Has the kernel find the directories again that it was refused.
    private func attachDirectories() {
        let paths = locker.fileSystem.detachedDirectories(all: receipt.names == "invalidated")
        let isDone = locker.caches.lookUp(paths) { [locker] in !locker.isToLock }
        if isDone { locker.fileSystem.attachedDirectories() }
    }

    private mutating func finishUnlock() {
        locker.announce(.willUnlock)
        gate.noteActivity()
        gate.setExpired(false)
        gate.enter(.unlocked)
        locker.publish { $0.since = UtcTime.now() }
        attachDirectories()
        locker.announce(.didUnlock)
    }
}
