internal import CFuse
internal import Glibc
internal import Synchronization

/// An open(2) that is answered later, by exactly one thread: with its result, or with EINTR as soon as the program is
/// interrupted or killed. Any thread.
final class PendingOpen: @unchecked Sendable {
    // @unchecked: any thread may answer libfuse's request. `replies` lets only one do it.
    let request: Request
    private let replies = ReplyOnce()

    /// On the request's own thread, before any reply.
    init(_ request: Request) {
        self.request = request
        // `take` removes the function again before this object can go.
        fuse_req_interrupt_func(request.raw, onInterrupt, Unmanaged.passUnretained(self).toOpaque())
        if replies.begin(), replies.take() { fuse_reply_err(request.raw, EINTR) }
    }

    /// Returns true if the caller must reply. False if the interrupt has been answered.
    func take() -> Bool {
        guard replies.take() else { return false }
        // Waits for a call that is running. libfuse makes none after this.
        fuse_req_interrupt_func(request.raw, nil, nil)
        return true
    }

    fileprivate func interrupt() {
        let request = request
        if replies.interrupt(), replies.take() { fuse_reply_err(request.raw, EINTR) }
    }
}

/// Decides which thread replies to a request that may be interrupted. Any thread.
///
/// `fuse_req_interrupt_func` itself calls the function if the interrupt came earlier, and then still uses the request,
/// which a reply frees. So an interrupt during `fuse_req_interrupt_func` is answered after it.
final class ReplyOnce: Sendable {
    private enum Stage: UInt8, AtomicRepresentable {
        case registering, interrupted, waiting, answered
    }

    private let stage = Atomic<Stage>(.registering)

    /// `fuse_req_interrupt_func` has returned. Returns true if it was interrupted meanwhile: the caller must reply.
    func begin() -> Bool { !endRegistering(as: .waiting) }

    /// libfuse reports an interrupt. Returns true if the caller may reply.
    func interrupt() -> Bool { !endRegistering(as: .interrupted) }

    private func endRegistering(as next: Stage) -> Bool {
        stage.compareExchange(expected: .registering, desired: next, ordering: .acquiringAndReleasing).exchanged
    }

    /// Returns true to the first caller only, which must reply.
    func take() -> Bool { stage.exchange(.answered, ordering: .acquiringAndReleasing) != .answered }
}

private func onInterrupt(_ raw: fuse_req_t?, _ pending: UnsafeMutableRawPointer?) {
    guard let pending else { return }
    Unmanaged<PendingOpen>.fromOpaque(pending).takeUnretainedValue().interrupt()
}
