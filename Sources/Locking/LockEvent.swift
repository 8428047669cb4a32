/// An event of a mount's lock.
package enum LockEvent: Sendable {
    /// The grace may be 0.
    case willLock([LockReason], graceMilliseconds: Int)
    case didLock(LockReceipt)
    case willUnlock
    case didUnlock
    /// The number of requests refused since the last such event.
    case denied(count: UInt64)
    /// Damage was found. The text contains no names.
    case integrityError(String)
}
