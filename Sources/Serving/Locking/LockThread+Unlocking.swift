internal import FileSystem
internal import LinuxSystem
internal import Logging
internal import SystemPackage
internal import VaultCrypto

extension LockThread {
    /// Time to read the slots and try a secret on them.
    private static let unlockTimeoutMilliseconds = 120_000
    private static let overtaken = "a lock was asked for meanwhile"

    /// Unlocks. Returns true if the vault was unlocked already.
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
        finishUnlock()
        return false
    }

    /// Throws if a lock file prevents an unlock.
    private func refuse(where isAgainst: (LockFileState) -> Bool) throws(UnlockRefusal) {
        let seen = gate.lockingFiles().filter { isAgainst($0.state) }
        guard let first = seen.first else { return }
        throw .lockFile(seen.map { $0.file.path.string }, reason: first.file.describe(first.state))
    }

    /// Accepts the directories that are there now as those of the lock files.
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
        areKeysForgotten = false
    }

    /// Restores keys without a secret. This can fail, for example if a key file is missing.
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

    /// Runs `body`, which reads the store. After a timeout, or if a lock was requested meanwhile, `body` may still restore
    /// keys. The receipt says so until another lock has wiped them.
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
    mutating func areKeysBack() -> Bool {
        do throws(UnlockRefusal) { try restoreKeys() } catch {
            controller.logger.error("not unlocked: \(error)")
            return false
        }
        return true
    }

    /// Makes the kernel find directories again whose lookups were refused.
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

    mutating func finishUnlock() {
        announce(.willUnlock)
        areAllKeysForgotten = false
        isToForget = false
        gate.markActivity()
        gate.setExpired(false)
        gate.enter(.unlocked)
        controller.fileSystem.endArrivals()
        controller.publish { $0.since = UtcTime.now() }
        attachDirectories()
        announce(.didUnlock)
    }
}
