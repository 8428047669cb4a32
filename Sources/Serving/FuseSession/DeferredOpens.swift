internal import CFuse
internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// Long opens, on threads of their own, so that the workers stay free for other requests, for interrupts and for a
/// lock. Exactly one thread answers each open: with its result, or with EINTR as soon as the program is interrupted or
/// killed. Any thread.
final class DeferredOpens: Sendable {
    private struct State {
        var waiting: [@Sendable () -> Void] = []
        /// The number of threads. Each ends when the queue is empty.
        var threads = 0
    }

    private let mostThreads: Int
    private let state = Monitor(State())

    /// - Parameter mostThreads: the number of opens at a time. More are queued.
    init(mostThreads: Int) { self.mostThreads = mostThreads }

    /// Answers `request` later. Called on the request's own thread, before any reply.
    /// - Parameter open: opens the file. Its function `mustReply` returns true if `open` must reply, and false if an
    ///   interrupt has been answered.
    func add(_ request: Request, _ open: @escaping @Sendable (Request, _ mustReply: () -> Bool) -> Void) {
        let pending = PendingRequest(request)
        let isQueued = state.update { state in
            if state.threads < mostThreads, let thread = try? BackgroundThread({ [self] in work() }) {
                thread.detach()
                state.threads += 1
            }
            if state.threads > 0 { state.waiting.append { open(pending.request, pending.claimReply) } }
            return state.threads > 0
        }
        if !isQueued, pending.claimReply() { fuse_reply_err(request.raw, EAGAIN) }
    }

    /// Waits until all opens have been answered. Called after the last request.
    func end() { state.wait { $0.threads == 0 ? () : nil } }

    private func work() {
        while let open = next() { open() }
    }

    private func next() -> (@Sendable () -> Void)? {
        state.update { state in
            if !state.waiting.isEmpty { return state.waiting.removeFirst() }
            state.threads -= 1
            return nil
        }
    }
}

/// A request to be answered later, unless its program is interrupted before. Any thread.
private final class PendingRequest: @unchecked Sendable {
    // @unchecked: any thread may answer libfuse's request, but `replies` lets only one do it.
    let request: Request
    private let replies = ReplyOnce()

    init(_ request: Request) {
        self.request = request
        // `claimReply` removes the function again before this object is freed.
        fuse_req_interrupt_func(request.raw, onInterrupt, Unmanaged.passUnretained(self).toOpaque())
        if replies.begin(), replies.claim() { fuse_reply_err(request.raw, EINTR) }
    }

    /// Returns true if the caller must reply, and false if the interrupt has been answered.
    func claimReply() -> Bool {
        guard replies.claim() else { return false }
        // This waits for a running call of the function. libfuse makes none after it.
        fuse_req_interrupt_func(request.raw, nil, nil)
        return true
    }

    fileprivate func interrupt() {
        let request = request
        if replies.interrupt(), replies.claim() { fuse_reply_err(request.raw, EINTR) }
    }
}

/// Decides which thread replies to a request that may be interrupted. Any thread.
///
/// `fuse_req_interrupt_func` itself calls the function if the interrupt came earlier, and then still uses the request,
/// which a reply frees. So such an interrupt is answered only after `fuse_req_interrupt_func` has returned.
final class ReplyOnce: Sendable {
    private enum Stage: UInt8, AtomicRepresentable {
        case registering, interrupted, waiting, answered
    }

    private let stage = Atomic<Stage>(.registering)

    /// Ends the registration. Returns true if an interrupt came meanwhile, so that the caller must reply.
    func begin() -> Bool { !endRegistering(as: .waiting) }

    /// Records an interrupt reported by libfuse. Returns true if the caller may reply.
    func interrupt() -> Bool { !endRegistering(as: .interrupted) }

    private func endRegistering(as next: Stage) -> Bool {
        stage.compareExchange(expected: .registering, desired: next, ordering: .acquiringAndReleasing).exchanged
    }

    /// Returns true only to the first caller, which must reply.
    func claim() -> Bool { stage.exchange(.answered, ordering: .acquiringAndReleasing) != .answered }
}

private func onInterrupt(_ raw: fuse_req_t?, _ pending: UnsafeMutableRawPointer?) {
    guard let pending else { return }
    Unmanaged<PendingRequest>.fromOpaque(pending).takeUnretainedValue().interrupt()
}
