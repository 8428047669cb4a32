internal import CFuse
internal import FileSystem
internal import Glibc
internal import Locking
internal import Synchronization

/// The state of one worker thread.
final class Worker: @unchecked Sendable {
    // @unchecked: other threads use `thread`, `linkedNames`, the atomics, and `wiped` under the mutex of the server's
    // list.
    let thread = pthread_self()
    let workspace: any WorkerBuffers
    let inFlight: LockGate.InFlight
    let linkedNames: LinkedNames
    /// The current request, as sent by the kernel.
    var message = fuse_buf()
    /// `setxattr_flags` of the current request, which libfuse 3.14 does not pass on.
    var setxattrFlags: UInt32 = 0
    /// True if a lock has refused the current request.
    var isRefused = false
    /// True during a request outside of the gate, for which a lock does not wait.
    let hasLeftGate = Atomic<Bool>(false)
    /// True while the worker waits for a request in read(2).
    let isReceiving = Atomic<Bool>(false)
    /// The start of the current request, in nanoseconds of CLOCK_MONOTONIC. 0 between requests.
    let started = Atomic<Int>(0)
    /// The last wiping round in which the worker has taken part.
    var wiped = 0
    /// The thread's umask. Nil until it is set.
    private var creationMask: mode_t?

    init(workspace: any WorkerBuffers, inFlight: LockGate.InFlight, linkedNames: LinkedNames) {
        (self.workspace, self.inFlight, self.linkedNames) = (workspace, inFlight, linkedNames)
    }

    /// Wipes the current request after a lock has refused it, because the lock's round of wiping may be over.
    /// - Parameter count: the request's size in bytes.
    func wipeRequest(_ count: Int32) {
        isRefused = false
        explicit_bzero(message.mem, Int(count))
    }

    /// Sets the umask(2) of this thread, which has one of its own.
    func setCreationMask(_ mask: mode_t) {
        if creationMask == mask { return }
        umask(mask)
        creationMask = mask
    }

    deinit { free(message.mem) }
}
