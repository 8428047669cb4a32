package import LinuxSystem
package import VaultCrypto

/// The lease of a mount. All calls except `noteTime` come from the lock thread.
package protocol LeaseKeeper: Sendable {
    /// Its end. Nil if it never ends.
    var end: LeaseEnd? { get }
    /// Reads the vault for a renewal, a change or a revocation, and returns true if the lease has ended.
    func hasEnded() -> Bool
    /// True if the lease has ended as far as known, without reading the vault.
    var isOver: Bool { get }
    /// Readable when the lease may have changed. The bytes do not matter. Nil if changes cannot be watched.
    var changes: Descriptor? { get }
    /// Records the time in the vault, if the slot needs it and the keys are available. Any thread.
    func noteTime()
}

/// A time on two clocks. It is reached when either clock reaches it.
package struct LeaseEnd: Sendable, Equatable {
    /// CLOCK_REALTIME, in milliseconds.
    package let wall: Int64
    /// CLOCK_BOOTTIME, in milliseconds. It includes suspend, and cannot be set.
    package let boot: Int64

    package init(wall: Int64, boot: Int64) { (self.wall, self.boot) = (wall, boot) }
}

/// A user's secret in the form that the file system needs.
package struct UnlockSecret: Sendable {
    /// The master key, if this is a vault.
    package let bytes: SecretBytes
    /// Called when the keys are restored. The lease is then that of the opened slot.
    package let whenRestored: @Sendable () -> Void

    package init(_ bytes: SecretBytes, whenRestored: @escaping @Sendable () -> Void = {}) {
        self.bytes = bytes
        self.whenRestored = whenRestored
    }
}
