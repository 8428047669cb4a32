internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage

/// What the watch's thread is asked from outside, with an eventfd(2) that wakes it. Any thread.
final class WatchWaker: Sendable {
    let fd: Int32
    private let isStopping = Atomic(false)
    private let isRefreshing = Atomic(false)

    init() throws(Errno) {
        let fd = linux_eventfd()
        guard fd >= 0 else { throw Errno(rawValue: errno) }
        self.fd = fd
    }

    deinit {
        close(fd)
    }

    func refresh() {
        isRefreshing.store(true, ordering: .releasing)
        wake()
    }

    func stop() {
        isStopping.store(true, ordering: .releasing)
        wake()
    }

    private func wake() {
        // Fails only when the counter is full, and the thread awake anyway.
        var one: UInt64 = 1
        write(fd, &one, 8)
    }

    /// Takes what was asked since the last time.
    func take() -> (isStopping: Bool, isRefreshing: Bool) {
        var count: UInt64 = 0
        read(fd, &count, 8)
        return (
            isStopping.load(ordering: .acquiring), isRefreshing.exchange(false, ordering: .acquiring)
        )
    }
}
