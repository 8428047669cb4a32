internal import BackingStore
internal import LockFiles
internal import Logging
internal import SystemPackage
internal import VaultCrypto

extension LockerLoop {
    /// Milliseconds for reading the slots and trying a secret on them.
    private static let unlockPatience = 120_000

    /// Returns whether there was nothing to unlock.
    mutating func unlock(_ secret: Locker.SecretSource?) throws(UnlockRefusal) -> Bool {
        if gate.state == .unlocked { return true }
        try refuseWhileWiping()
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
            let read = locker.bounded(milliseconds: Self.unlockPatience) {
                Result { () throws(UnlockRefusal) in try source() }
            }
            guard let read else { throw .failed("the vault's store does not answer") }
            secret = try read.get()
        } catch {
            if case .wrongSecret = error { limiter.failed(at: .now) }
            throw error
        }
        limiter.succeeded()
        // Finding the secret may have taken a while.
        guard !locker.isToLock else { throw .failed("a lock was asked for meanwhile") }
        try locker.fileSystem.restoreKeys(secret.bytes)
        secret.whenRestored()
        areKeysForgotten = false
    }

    /// Those that take no secret: a key file may have gone.
    private mutating func restoreKeys() throws(UnlockRefusal) {
        guard areKeysForgotten else { return }
        try refuseWhileWiping()
        try locker.fileSystem.restoreKeys(nil)
        areKeysForgotten = false
    }

    /// What a lock has begun and not ended may wipe keys yet.
    private func refuseWhileWiping() throws(UnlockRefusal) {
        if locker.isWiping { throw .failed("the vault's store does not answer: its keys are still being wiped") }
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
        let paths = locker.bounded { [fileSystem = locker.fileSystem] in
            fileSystem.detachedDirectories(all: isAll)
        }
        // Where the store does not answer, whoever works in one finds it when he looks.
        guard let paths else { return }
        let isDone = locker.caches.lookUp(paths) { [locker] in !locker.isToLock }
        if isDone { locker.fileSystem.attachedDirectories() }
    }

    mutating func finishUnlock() {
        locker.announce(.willUnlock)
        areAllKeysForgotten = false
        gate.noteActivity()
        gate.setExpired(false)
        gate.enter(.unlocked)
        locker.publish { $0.since = UtcTime.now() }
        attachDirectories()
        locker.announce(.didUnlock)
    }
}
