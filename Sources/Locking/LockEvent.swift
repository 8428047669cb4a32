internal import FileSystem

/// What a mount announces about its lock.
package enum LockEvent: Sendable {
    /// With the causes; a grace may follow, in milliseconds.
    case willLock([LockReason], graceMilliseconds: Int)
    case didLock(LockReceipt)
    case willUnlock
    case didUnlock
    /// Requests refused since the last such event.
    case denied(count: UInt64)
    /// Something did not verify; what and where, without names.
    case integrityError(String)
}
