internal import FileSystem
internal import LinuxSystem
internal import Logging
internal import SystemPackage
internal import VaultCrypto

extension LockThread {
    /// Milliseconds for reading the slots and trying a secret on them.
    private static let unlockTimeoutMilliseconds = 120_000
    private static let overtaken = "a lock was asked for meanwhile"

    /// Returns whether there was nothing to unlock.
    mutating func unlock(_ secret: LockController.SecretSource?) throws(UnlockRefusal) -> Bool {
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
    private func refuse(where isAgainst: (LockFileState) -> Bool) throws(UnlockRefusal) {
        let seen = controller.lockFileChecks?.states().filter { isAgainst($0.state) } ?? []
        guard let first = seen.first else { return }
        throw .lockFile(seen.map { $0.file.path.string }, reason: first.file.describe(first.state))
    }

    /// Takes the directories that are there now for those of the lock files.
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
        // Finding the secret may have taken a while.
        guard !controller.isToLock else { throw .failed(Self.overtaken) }
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
        let fileSystem = controller.fileSystem
        try withinTimeout { () throws(UnlockRefusal) in try fileSystem.restoreKeys(secret) }
    }

    /// Runs what reads the store. Where that takes too long, or longer than a lock that was asked for waits, there may be keys
    /// yet: the receipt says so until a lock has taken them away.
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

    /// What a lock or an unlock has begun and not ended may wipe keys yet, or bring some.
    private func refuseWhileBusy() throws(UnlockRefusal) {
        if controller.isWiping { throw .failed("the vault's store does not answer: its keys are still being wiped") }
        if controller.isUnlocking {
            throw .failed("the vault's store does not answer: an earlier unlock that was given up has not ended")
        }
    }

    /// The same where nobody waits to be told.
    mutating func areKeysBack() -> Bool {
        do throws(UnlockRefusal) { try restoreKeys() } catch {
            controller.logger.error("not unlocked: \(error)")
            return false
        }
        return true
    }

    /// Has the kernel find the directories again that it was refused.
    private func attachDirectories() {
        let isAll = receipt.names == "invalidated"
        let paths = controller.boundedUnlessLocking { [fileSystem = controller.fileSystem] in
            fileSystem.detachedDirectories(all: isAll)
        }
        // Where the store does not answer, whoever works in one finds it when he looks.
        guard let paths else { return }
        let isDone = controller.caches.lookUp(paths) { [controller] in !controller.isToLock }
        if isDone { controller.fileSystem.attachedDirectories() }
    }

    mutating func finishUnlock() {
        announce(.willUnlock)
        areAllKeysForgotten = false
        gate.noteActivity()
        gate.setExpired(false)
        gate.enter(.unlocked)
        controller.publish { $0.since = UtcTime.now() }
        attachDirectories()
        announce(.didUnlock)
    }
}
