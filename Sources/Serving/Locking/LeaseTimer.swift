internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
package import VaultCrypto

/// Calls a function when a lease ends or may have changed, and sleeps until then (timerfd_create(2)). Any thread.
///
/// An absolute timer of CLOCK_REALTIME follows changes of that clock. A second timer, of CLOCK_BOOTTIME, still fires if
/// the clock is set back. Both include suspend, unlike a condition variable's timeout.
final class LeaseTimer: Sendable {
    private let wall, boot: Descriptor
    private let waker: Waker
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Parameters:
    ///   - changes: reports changes of the lease.
    ///   - onEnd: called on the timer's thread, once or twice for each `set`, and for each change.
    /// - Throws: the error of timerfd_create(2), eventfd(2) or pthread_create(3).
    init(changes: EntryWatch?, onEnd: @escaping @Sendable () -> Void) throws(StoreError) {
        wall = Descriptor(owning: try retrying { linux_timer(CLOCK_REALTIME) })
        boot = Descriptor(owning: try retrying { linux_timer(CLOCK_BOOTTIME) })
        waker = try Waker()
        let made = try BackgroundThread { [self] in
            while let isDue = wait(orChange: changes) { if isDue { onEnd() } }
        }
        thread.withLock { $0 = made }
    }

    /// Sets the end at which the function is called, at once if it has passed. Nil cancels the call.
    func set(_ end: LeaseEnd?) {
        // This fails only for times before 1970. Zero would disarm the timer.
        _ = linux_timer_set(wall.fd, end.map { max(1, $0.wall) } ?? 0)
        _ = linux_timer_set(boot.fd, end.map { max(1, $0.boot) } ?? 0)
    }

    /// Ends the thread. The function is not called afterwards.
    func stop() {
        waker.wake()
        thread.withLock { $0.take()?.join() }
    }

    /// Waits until a timer or `changes` is readable, and reads them. Returns true if a timer has fired, or the lease
    /// may have changed. Returns nil if `waker` is readable.
    private func wait(orChange changes: EntryWatch?) -> Bool? {
        let timers = [wall, boot]
        let descriptors = [waker.fd] + timers.map(\.fd) + [changes?.descriptor.fd ?? -1]
        var entries = descriptors.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        while poll(&entries, nfds_t(entries.count), -1) < 0 {}
        if entries[0].revents != 0 { return nil }
        var expirations: UInt64 = 0
        var hasFired = entries[1].revents | entries[2].revents != 0
        // One may have fired since the poll, and fires only once.
        for timer in timers where read(timer.fd, &expirations, 8) > 0 { hasFired = true }
        let isChanged = changes?.readChange() ?? false
        return hasFired || isChanged
    }
}

/// The lease of a mount. Any thread: the lock thread calls some functions on threads of their own.
package protocol LeaseKeeper: Sendable {
    /// The end of the lease. Nil if it never ends.
    var end: LeaseEnd? { get }
    /// Reads the vault for a renewal, a change or a revocation, and returns true if the lease has ended.
    func hasEnded() -> Bool
    /// True if the lease has ended as far as known, without reading the vault.
    var isOver: Bool { get }
    /// Reports changes of the lease. Nil if they cannot be watched.
    var changes: EntryWatch? { get }
    /// Saves the time in the vault, if the slot needs it and the keys are available. Any thread.
    func saveTime()
}

/// A time on two clocks. It is reached when either clock reaches it.
package struct LeaseEnd: Sendable, Equatable {
    /// CLOCK_REALTIME, in milliseconds.
    package let wall: Int64
    /// CLOCK_BOOTTIME, in milliseconds. This clock includes suspend, and cannot be set.
    package let boot: Int64

    package init(wall: Int64, boot: Int64) { (self.wall, self.boot) = (wall, boot) }
}

/// A user's secret in the file system's own form.
package struct UnlockSecret: Sendable {
    /// The secret's bytes, for a vault its master key.
    package let bytes: SecretBytes
    /// Called when the keys are restored. From then on the lease is that of the opened slot.
    package let whenRestored: @Sendable () -> Void

    package init(_ bytes: SecretBytes, whenRestored: @escaping @Sendable () -> Void = {}) {
        self.bytes = bytes
        self.whenRestored = whenRestored
    }
}
