internal import BackingStore
internal import CFuse
internal import Glibc
internal import Synchronization

/// The open(2) requests that are answered later. A program that is interrupted, or killed, while it waits for one is let
/// go at once. Any thread.
final class PendingOpens: Sendable {
    private struct State {
        var waiting: [UInt: PendingOpen] = [:]
        var last: UInt = 0
    }

    private let state = Mutex(State())

    /// On the request's own thread, which has not answered it.
    func add(_ request: Request) -> PendingOpen {
        let pending = state.withLock { state in
            state.last += 1
            let pending = PendingOpen(request, number: state.last)
            state.waiting[state.last] = pending
            return pending
        }
        // By its number: libfuse may call for a request that is being answered right now.
        fuse_req_interrupt_func(request.raw, onInterrupt, UnsafeMutableRawPointer(bitPattern: pending.number))
        return pending
    }

    fileprivate func interrupt(_ number: UInt) {
        let pending = state.withLock { $0.waiting[number] }
        pending?.answer { request in
            fuse_reply_err(request.raw, EINTR)
        } orElse: {
        }
    }

    fileprivate func remove(_ number: UInt) {
        state.withLock { $0.waiting[number] = nil }
    }
}

/// One such request. Any thread.
final class PendingOpen: @unchecked Sendable {
    // @unchecked: libfuse's request may be answered by any thread; by one alone, as `isAnswered` sees to.
    private let request: Request
    fileprivate let number: UInt
    private let isAnswered = Atomic<Bool>(false)

    fileprivate init(_ request: Request, number: UInt) {
        self.request = request
        self.number = number
    }

    /// Runs `body`, which answers, or `otherwise` where that has been done.
    func answer(_ body: (Request) -> Void, orElse otherwise: () -> Void) {
        guard !isAnswered.exchange(true, ordering: .acquiringAndReleasing) else { return otherwise() }
        request.server.pendingOpens.remove(number)
        body(request)
    }
}

private func onInterrupt(_ raw: fuse_req_t?, _ number: UnsafeMutableRawPointer?) {
    guard let raw, let number else { return }
    let server = Unmanaged<FuseServer>.fromOpaque(fuse_req_userdata(raw)).takeUnretainedValue()
    server.pendingOpens.interrupt(UInt(bitPattern: number))
}
