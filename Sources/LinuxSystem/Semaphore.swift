internal import CLinux
internal import Glibc

/// A counter to wait for, sem_overview(7). Unlike a condition it lets a signal interrupt who waits. Any thread.
package final class Semaphore: @unchecked Sendable {
    // @unchecked: the semaphore is made for many threads; the pointer is written once.
    private let semaphore: UnsafeMutablePointer<sem_t>

    package init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    package func post() {
        sem_post(semaphore)
    }

    /// Returns false where a signal came instead.
    @discardableResult
    package func wait() -> Bool {
        sem_wait(semaphore) == 0
    }

    /// Waits for so long at most; false where nothing was posted in that time, or a signal came.
    /// - Parameter nanoseconds: less than a second.
    package func wait(nanoseconds: Int64) -> Bool {
        linux_semaphore_wait(semaphore, nanoseconds) == 0
    }
}
