internal import FileSystem
internal import LinuxSystem
internal import Logging
internal import SystemPackage
internal import VaultCrypto

extension LockerLoop {
    /// Milliseconds for reading the slots and trying a secret on them.
    private static let unlockPatience = 120_000
    private static let overtaken = "a lock was asked for meanwhile"

    /// Returns whether there was nothing to unlock.
    mutating func unlock(_ secret: Locker.SecretSource?) throws(UnlockRefusal) -> Bool {
        if gate.state == .unlocked { return true }
        try refuseWhileBusy()
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

    private mutating func restoreKeys(_ source: @escaping Locker.SecretSource) throws(UnlockRefusal) {
        let wait = limiter.wait(at: .now)
        guard wait == 0 else { throw .tooManyTries(seconds: wait) }
        let secret: UnlockSecret
        do throws(UnlockRefusal) {
            secret = try withinPatience(source)
        } catch {
            if case .wrongSecret = error { limiter.failed(at: .now) }
            throw error
        }
        limiter.succeeded()
        // Finding the secret may have taken a while.
        guard !locker.isToLock else { throw .failed(Self.overtaken) }
        try restore(secret.bytes)
        secret.whenRestored()
        areKeysForgotten = false
    }

    /// Those that take no secret: a key file may have gone.
    private mutating func restoreKeys() throws(UnlockRefusal) {
        guard areKeysForgotten else { return }
        try refuseWhileBusy()
        try restore(nil)
        areKeysForgotten = false
    }

    private mutating func restore(_ secret: SecretBytes?) throws(UnlockRefusal) {
        let fileSystem = locker.fileSystem
        try withinPatience { () throws(UnlockRefusal) in try fileSystem.restoreKeys(secret) }
    }

    /// Runs what reads the store. Where that takes too long, or longer than a lock that was asked for waits, there may be keys
    /// yet: the receipt says so until a lock has taken them away.
    private mutating func withinPatience<Value: Sendable>(
        _ body: @escaping @Sendable () throws(UnlockRefusal) -> Value
    ) throws(UnlockRefusal) -> Value {
        let result = locker.boundedUnlocking(milliseconds: Self.unlockPatience) {
            Result { () throws(UnlockRefusal) in try body() }
        }
        if let result { return try result.get() }
        receipt.fail("keys of an unlock that was given up" + LockSequence.reason)
        let receipt = receipt
        locker.publish { $0.lastReceipt = receipt }
        locker.lockAgainLater()
        throw .failed(locker.isToLock ? Self.overtaken : "the vault's store does not answer")
    }

    /// What a lock or an unlock has begun and not ended may wipe keys yet, or bring some.
    private func refuseWhileBusy() throws(UnlockRefusal) {
        if locker.isWiping { throw .failed("the vault's store does not answer: its keys are still being wiped") }
        if locker.isUnlocking {
            throw .failed("the vault's store does not answer: an earlier unlock that was given up has not ended")
        }
    }

    /// The same where nobody waits to be told.
    mutating func areKeysBack() -> Bool {
        do throws(UnlockRefusal) { try restoreKeys() } catch {
            locker.logger.error("not unlocked: \(error)")
            return false
        }
        return true
    }

    /// Has the kernel find the directories again that it was refused.
    private func attachDirectories() {
        let isAll = receipt.names == "invalidated"
        let paths = locker.boundedUnlessLocking { [fileSystem = locker.fileSystem] in
            fileSystem.detachedDirectories(all: isAll)
        }
        // Where the store does not answer, whoever works in one finds it when he looks.
        guard let paths else { return }
        let isDone = locker.caches.lookUp(paths) { [locker] in !locker.isToLock }
        if isDone { locker.fileSystem.attachedDirectories() }
    }

    mutating func finishUnlock() {
        announce(.willUnlock)
        areAllKeysForgotten = false
        gate.noteActivity()
        gate.setExpired(false)
        gate.enter(.unlocked)
        locker.publish { $0.since = UtcTime.now() }
        attachDirectories()
        announce(.didUnlock)
    }
}
