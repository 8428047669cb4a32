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
        if pending.answering.begin() { pending.giveUp() }
        return pending
    }

    fileprivate func interrupt(_ number: UInt) {
        guard let pending = state.withLock({ $0.waiting[number] }), pending.answering.interrupt() else { return }
        pending.giveUp()
    }

    fileprivate func remove(_ number: UInt) {
        state.withLock { $0.waiting[number] = nil }
    }
}

/// One such request. Any thread.
final class PendingOpen: @unchecked Sendable {
    // @unchecked: libfuse's request may be answered by any thread; by one alone, as `answering` sees to.
    private let request: Request
    fileprivate let number: UInt
    fileprivate let answering = Answering()

    fileprivate init(_ request: Request, number: UInt) {
        self.request = request
        self.number = number
    }

    /// Runs `body`, which answers, or `otherwise` where that has been done.
    func answer(_ body: (Request) -> Void, orElse otherwise: () -> Void) {
        guard answering.take() else { return otherwise() }
        request.server.pendingOpens.remove(number)
        body(request)
    }

    fileprivate func giveUp() {
        answer { request in
            fuse_reply_err(request.raw, EINTR)
        } orElse: {
        }
    }
}

/// Who answers a request that may be interrupted: one alone, and not yet while libfuse is told whom to call.
///
/// `fuse_req_interrupt_func` itself calls where the interrupt came before, and then goes on to use the request, which the
/// answer frees. Any thread.
final class Answering: Sendable {
    private enum Stage: UInt8, AtomicRepresentable {
        case beginning, interrupted, waiting, answered
    }

    private let stage = Atomic<Stage>(.beginning)

    /// libfuse is told. True where it has called meanwhile: the caller is to answer.
    func begin() -> Bool {
        !stage.compareExchange(expected: .beginning, desired: .waiting, ordering: .acquiringAndReleasing).exchanged
    }

    /// libfuse calls. True where the caller is to answer.
    func interrupt() -> Bool {
        !stage.compareExchange(expected: .beginning, desired: .interrupted, ordering: .acquiringAndReleasing).exchanged
    }

    /// True for the first alone, who answers.
    func take() -> Bool {
        stage.exchange(.answered, ordering: .acquiringAndReleasing) != .answered
    }
}

private func onInterrupt(_ raw: fuse_req_t?, _ number: UnsafeMutableRawPointer?) {
    guard let raw, let number else { return }
    let server = Unmanaged<FuseServer>.fromOpaque(fuse_req_userdata(raw)).takeUnretainedValue()
    server.pendingOpens.interrupt(UInt(bitPattern: number))
}
