internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Calls when a lease ends or may have been changed, and sleeps until then (timerfd_create(2)). Any thread.
///
/// A timer of CLOCK_REALTIME with an absolute time follows a clock that is set; that of CLOCK_BOOTTIME is there for one that
/// is set back. Both count the time in which the machine sleeps, as the waits of a condition variable do not.
final class LeaseTimer: Sendable {
    private let wall: Descriptor
    private let boot: Descriptor
    private let waker: Descriptor
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Parameters:
    ///   - changes: of the lease.
    ///   - onEnd: called on the timer's thread, once for each `set`, or twice, and whenever `changes` are readable.
    /// - Throws: the error of timerfd_create(2), eventfd(2) or pthread_create(3).
    init(changes: Descriptor?, onEnd: @escaping @Sendable () -> Void) throws(StoreError) {
        wall = Descriptor(owning: try retrying { linux_timer(CLOCK_REALTIME) })
        boot = Descriptor(owning: try retrying { linux_timer(CLOCK_BOOTTIME) })
        waker = Descriptor(owning: try retrying { linux_eventfd() })
        let (wall, boot, waker) = (wall, boot, waker)
        let made = try BackgroundThread {
            let others = [wall, boot, changes].compactMap { $0 }
            while Self.wait(for: others, or: waker) { onEnd() }
        }
        thread.withLock { $0 = made }
    }

    /// From now on it is called at `end`, at once where that has passed; nil: not at all.
    func set(_ end: LeaseEnd?) {
        // Fails for times before 1970 alone; zero would disarm.
        _ = linux_timer_set(wall.fd, end.map { max(1, $0.wall) } ?? 0)
        _ = linux_timer_set(boot.fd, end.map { max(1, $0.boot) } ?? 0)
    }

    /// Ends the thread. No call comes after that.
    func stop() {
        var one: UInt64 = 1
        write(waker.fd, &one, 8)
        thread.withLock { $0.take()?.join() }
    }

    /// Waits until one of them can be read, and reads it; false where it is stopped.
    private static func wait(for others: [Descriptor], or waker: Descriptor) -> Bool {
        var entries = ([waker] + others).map { pollfd(fd: $0.fd, events: Int16(POLLIN), revents: 0) }
        while poll(&entries, nfds_t(entries.count), -1) < 0 {}
        // An event of inotify(7) fits.
        var buffer = [UInt8](repeating: 0, count: 4096)
        for other in others { read(other.fd, &buffer, buffer.count) }
        return entries[0].revents == 0
    }
}
