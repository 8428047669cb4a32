internal import LinuxSystem
internal import Synchronization

/// The requests to the watch's thread. Any thread.
final class WatchWaker: Sendable {
    private let waker: Waker
    private let isStopping = Atomic(false)
    private let isRefreshing = Atomic(false)

    init() throws(StoreError) {
        waker = try Waker()
    }

    var fd: Int32 { waker.fd }

    func refresh() {
        isRefreshing.store(true, ordering: .releasing)
        waker.wake()
    }

    func stop() {
        isStopping.store(true, ordering: .releasing)
        waker.wake()
    }

    /// Takes the requests made since the last call.
    func take() -> (isStopping: Bool, isRefreshing: Bool) {
        waker.clear()
        return (
            isStopping.load(ordering: .acquiring), isRefreshing.exchange(false, ordering: .acquiring)
        )
    }
}
