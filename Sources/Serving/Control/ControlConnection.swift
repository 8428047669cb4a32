internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// One client of a `ControlServer`, with a thread of its own, so that no other thread waits for the client.
final class ControlConnection: Sendable {
    /// The number of unread bytes at which the server hangs up on a subscriber.
    static let maximumUnreadEvents = 256 << 10

    /// In the order in which the server hangs up to make room, which it does only on the first two.
    enum Use: Comparable {
        case idle, awaitingReply
        /// The handler has `events`, and events wait for its reply.
        case subscribing
        case subscribed, ended
    }

    struct State {
        var use = Use.idle
        /// The time at which the client last sent something or was answered.
        var lastActivity = ContinuousClock.now
        /// The bytes that the socket has not accepted yet.
        var unsent: [UInt8] = []

        var isSubscriber: Bool { use == .subscribing || use == .subscribed }
    }

    let state = Mutex(State())
    private let server: ControlServer
    private let socket: Descriptor
    private let waker: Waker

    /// - Throws: the error of eventfd(2).
    init(_ socket: Descriptor, of server: ControlServer) throws(StoreError) {
        (self.socket, self.server) = (socket, server)
        waker = try Waker()
    }

    /// Serves the client until one side hangs up. Called on the client's thread.
    func run(_ handler: ControlServer.Handler) {
        let received = LineBuffer(maximumLineSize: ControlRequest.maximumSize)
        // An error means that the client has gone, is too slow, or had to make room, so it gets no answer.
        try? serve(received, handler)
        server.heldBytes.subtract(received.count, ordering: .relaxed)
        hangUp()
    }

    private func serve(_ received: LineBuffer, _ handler: ControlServer.Handler) throws(StoreError) {
        while try handOn(received, handler) {
            // An unlock may have left remains of its secret, and a waiting client keeps this stack.
            linux_scrub_thread()
            try sendEverything()
        }
    }

    /// Reads a request, gives it to the handler, and forgets it. Returns false if the connection must end.
    private func handOn(_ received: LineBuffer, _ handler: ControlServer.Handler) throws(StoreError) -> Bool {
        guard let request = try nextRequest(received) else { return false }
        // Scrub the thread now: the request may contain a secret, and a lock may follow once the handler has it.
        linux_scrub_thread()
        let isEvents = if case .events = request { true } else { false }
        // A subscriber counts before the handler reads the state, and so gets every later event.
        state.withLock { $0.use = isEvents ? .subscribing : .awaitingReply }
        if isEvents, server.subscribers.count > ControlServer.maximumSubscribers {
            deliver(.error(ControlFailure(.busy, "too many clients listen to events")))
        } else {
            // A request that takes long must not keep the descriptors of a client that has gone.
            handler(request) { [weak self] response in self?.deliver(response) }
        }
        return true
    }

    /// Reads the next request. Answers invalid lines itself. Returns nil if the connection must end.
    private func nextRequest(_ received: LineBuffer) throws(StoreError) -> ControlRequest? {
        var deadline: ContinuousClock.Instant?
        while true {
            let before = received.count
            do throws(ControlFailure) {
                defer { server.heldBytes.subtract(before - received.count, ordering: .relaxed) }
                if let request = try received.withNextLine(ControlRequest.parse) { return request }
            } catch {
                try refuse(error)
                if error.code == .requestTooLong { return nil }
                deadline = nil
                continue
            }
            // An idle client may stay, but one that has begun a line must end it.
            if received.count > 0, deadline == nil { deadline = .now + server.timeout }
            _ = try socket.wait(for: POLLIN, until: deadline)
            state.withLock { $0.lastActivity = .now }
            let count = try received.receive(from: socket)
            if count == 0 { return nil }
            if server.heldBytes.add(count, ordering: .relaxed).newValue > ControlServer.maximumHeldBytes {
                try refuse(ControlFailure(.busy, "too many long requests at a time"))
                return nil
            }
        }
    }

    private func refuse(_ failure: ControlFailure) throws(StoreError) {
        deliver(.error(failure))
        try sendEverything()
    }

    /// Waits for the answer and sends it. For a subscriber it then sends events, and does not return.
    /// - Throws: `ETIMEDOUT` if the client does not take its answer, and `ECONNRESET` if one side has hung up.
    private func sendEverything() throws(StoreError) {
        var deadline: ContinuousClock.Instant?
        while true {
            let (use, isSent) = state.withLock { state in
                flush(&state)
                return (state.use, state.unsent.isEmpty)
            }
            if use == .idle {
                if isSent { return }
                deadline = deadline ?? .now + server.timeout
            }
            _ = try socket.wait(for: isSent ? 0 : POLLOUT, besides: (waker.fd, POLLIN), until: deadline)
            waker.clear()
        }
    }

    // MARK: Any thread

    /// Makes the client's thread end, whatever it waits for.
    func hangUp() {
        state.withLock { $0.use = .ended }
        shutdown(socket.fd, Int32(SHUT_RDWR))
    }

    /// Sends an event to a subscriber. Leaves what the socket has no room for to the client's thread, but hangs up on a
    /// subscriber with too much unread.
    func deliver(event line: [UInt8]) {
        let unsent = state.withLock { state in
            if state.isSubscriber { state.unsent += line }
            flush(&state)
            return state.unsent.count
        }
        if unsent > Self.maximumUnreadEvents { hangUp() } else if unsent > 0 { waker.wake() }
    }

    private func deliver(_ response: ControlResponse) {
        let isSubscription = if case .subscribed = response { true } else { false }
        let line = jsonLine(response)
        state.withLock { state in
            state.unsent = line + (isSubscription ? state.unsent : [])
            state.use = isSubscription ? .subscribed : .idle
            state.lastActivity = .now
            // Send here, so that a client with the answer to `events` also gets the last event of an ending daemon.
            flush(&state)
        }
        waker.wake()
    }

    /// Sends as much as the socket accepts.
    private func flush(_ state: inout State) {
        while !state.unsent.isEmpty, state.use != .subscribing {
            do throws(StoreError) {
                state.unsent.removeFirst(try state.unsent.withBytes(socket.send))
            } catch {
                if error.errno != .wouldBlock { shutdown(socket.fd, Int32(SHUT_RDWR)) }
                return
            }
        }
    }
}
