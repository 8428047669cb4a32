internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// Calls a function when a lease ends or may have changed, and sleeps until then (timerfd_create(2)). Any thread.
///
/// An absolute timer of CLOCK_REALTIME follows changes of that clock. The timer of CLOCK_BOOTTIME is needed in case it is
/// set back. Both include suspend, which a condition variable's timeout does not.
final class LeaseTimer: Sendable {
    private let wall, boot: Descriptor
    private let waker: Waker
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Parameters:
    ///   - changes: the lease's.
    ///   - onEnd: called on the timer's thread, once or twice for each `set`, and whenever `changes` is readable.
    /// - Throws: the error of timerfd_create(2), eventfd(2) or pthread_create(3).
    init(changes: Descriptor?, onEnd: @escaping @Sendable () -> Void) throws(StoreError) {
        wall = Descriptor(owning: try retrying { linux_timer(CLOCK_REALTIME) })
        boot = Descriptor(owning: try retrying { linux_timer(CLOCK_BOOTTIME) })
        waker = try Waker()
        let made = try BackgroundThread { [self] in
            while wait(orChange: changes) { onEnd() }
        }
        thread.withLock { $0 = made }
    }

    /// Calls the function at `end`, at once if that has passed. Nil cancels it.
    func set(_ end: LeaseEnd?) {
        // This fails only for times before 1970. Zero would disarm.
        _ = linux_timer_set(wall.fd, end.map { max(1, $0.wall) } ?? 0)
        _ = linux_timer_set(boot.fd, end.map { max(1, $0.boot) } ?? 0)
    }

    /// Ends the thread. The function is not called after that.
    func stop() {
        waker.wake()
        thread.withLock { $0.take()?.join() }
    }

    /// Waits until a timer or `changes` is readable, and reads them. Returns false if `waker` is readable.
    private func wait(orChange changes: Descriptor?) -> Bool {
        let others = [wall, boot, changes].compactMap { $0?.fd }
        var entries = ([waker.fd] + others).map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        while poll(&entries, nfds_t(entries.count), -1) < 0 {}
        // An event of inotify(7) fits.
        var buffer = [UInt8](repeating: 0, count: 4096)
        for fd in others { read(fd, &buffer, buffer.count) }
        return entries[0].revents == 0
    }
}
