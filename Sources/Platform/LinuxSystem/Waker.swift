internal import CLinux
internal import Glibc

/// An eventfd(2) that wakes a thread in poll(2). Any thread.
package final class Waker: Sendable {
    private let descriptor: Descriptor

    /// - Throws: the error of eventfd(2).
    package init() throws(StoreError) { descriptor = Descriptor(owning: try retrying { linux_eventfd() }) }

    /// Readable from `wake` to `clear`.
    package var fd: Int32 { descriptor.fd }

    package func wake() {
        // This fails only if the counter is full, and then the descriptor is already readable.
        var one: UInt64 = 1
        write(fd, &one, 8)
    }

    package func clear() {
        var count: UInt64 = 0
        read(fd, &count, 8)
    }
}
