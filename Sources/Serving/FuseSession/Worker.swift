internal import CFuse
internal import FileSystem
internal import Glibc
internal import Locking
internal import Synchronization

/// The state of one worker thread.
final class Worker: @unchecked Sendable {
    // @unchecked: other threads use `thread` and `hasLeftGate`, and `wiped` under the mutex of the server's list.
    let thread = pthread_self()
    let workspace: any WorkerBuffers
    let inFlight: LockGate.InFlight
    let linkedNames: LinkedNames
    /// The current request, as the kernel sent it.
    var message = fuse_buf()
    /// `setxattr_flags` of the current request, which libfuse 3.14 does not pass on.
    var setxattrFlags: UInt32 = 0
    /// True if a lock has refused the current request.
    var isRefused = false
    /// True during a request that a lock does not wait for.
    let hasLeftGate = Atomic<Bool>(false)
    /// True while it waits for a request in read(2).
    let isReceiving = Atomic<Bool>(false)
    /// The start of the current request, in nanoseconds of CLOCK_MONOTONIC. 0 between requests.
    let started = Atomic<Int>(0)
    /// The last wiping round that it has taken part in.
    var wiped = 0
    /// The thread's umask. Nil if it was not set yet.
    private var creationMask: mode_t?

    init(workspace: any WorkerBuffers, inFlight: LockGate.InFlight, linkedNames: LinkedNames) {
        (self.workspace, self.inFlight, self.linkedNames) = (workspace, inFlight, linkedNames)
    }

    /// Wipes the current request, which a lock has refused: the round of wiping that the lock made may be over.
    /// - Parameter count: its size in bytes.
    func wipeRequest(_ count: Int32) {
        isRefused = false
        explicit_bzero(message.mem, Int(count))
    }

    /// umask(2) of this thread, which has one of its own.
    func setCreationMask(_ mask: mode_t) {
        if creationMask == mask { return }
        umask(mask)
        creationMask = mask
    }

    deinit { free(message.mem) }
}
