internal import FileSystem
package import LinuxSystem
package import VaultCrypto

/// The right to a mount, where it may end. What it tells comes from the lock controller's thread, but for `noteTime`.
package protocol LeaseKeeper: Sendable {
    /// When it ends; nil for never.
    var end: LeaseEnd? { get }
    /// Whether it has ended: looks first whether it was renewed, shortened or taken back.
    func hasEnded() -> Bool
    /// The same by what is known, without a look.
    var isOver: Bool { get }
    /// Readable, without waiting, when somebody may have changed it; what is read does not matter. Nil where nobody tells.
    var changes: Descriptor? { get }
    /// Notes for later what time it is, as far as that is wanted and keys are there. Any thread.
    func noteTime()
}

/// A moment on two clocks; what begins with the first of them counts.
package struct LeaseEnd: Sendable, Equatable {
    /// CLOCK_REALTIME, in milliseconds.
    package let wall: Int64
    /// CLOCK_BOOTTIME, in milliseconds: it goes on while the machine sleeps, and nobody sets it.
    package let boot: Int64

    package init(wall: Int64, boot: Int64) {
        (self.wall, self.boot) = (wall, boot)
    }
}

/// What a user gave to unlock, made into what the file system takes.
package struct UnlockSecret: Sendable {
    /// Of a vault, the master key.
    package let bytes: SecretBytes
    /// Called once the keys are back: the lease is now that of the slot which was opened.
    package let whenRestored: @Sendable () -> Void

    package init(_ bytes: SecretBytes, whenRestored: @escaping @Sendable () -> Void = {}) {
        self.bytes = bytes
        self.whenRestored = whenRestored
    }
}
