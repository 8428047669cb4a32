internal import CLinux
internal import Glibc

/// A counting semaphore (sem_overview(7)). Signals interrupt its wait, unlike a condition variable's. Any thread.
package final class Semaphore: @unchecked Sendable {
    // @unchecked: a sem_t is thread-safe, and only `init` writes the pointer.
    private let semaphore: UnsafeMutablePointer<sem_t>

    package init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    package func post() { sem_post(semaphore) }

    /// Takes one count. Returns false instead of waiting.
    package func tryWait() -> Bool { sem_trywait(semaphore) == 0 }

    /// Waits. Returns false if a signal interrupted the wait.
    @discardableResult
    package func wait() -> Bool { sem_wait(semaphore) == 0 }

    /// Waits. Returns false if the time ran out or a signal interrupted the wait.
    /// - Parameter nanoseconds: the timeout, less than a second.
    package func wait(nanoseconds: Int64) -> Bool { linux_semaphore_wait(semaphore, nanoseconds) == 0 }
}
