internal import Glibc

/// One client of a `ControlServer`. Used by the server's thread only. Never blocks.
final class ControlConnection {
    /// The number of unread bytes at which the server hangs up on a subscriber.
    static let maximumUnreadEvents = 256 << 10

    private enum Phase: Equatable {
        case listening
        /// The handler has a request. The next one is read after its reply.
        case awaitingReply
        /// The handler has `events`. Events wait until its reply is sent.
        case subscribing(held: [UInt8])
        case subscribed
    }

    let number: UInt64
    let socket: Socket
    private let timeout: Duration
    /// The time at which the client last sent or took something.
    private(set) var lastActivity: ContinuousClock.Instant
    private let received = LineBuffer(maximumLineSize: ControlMessage.maximumRequestSize)
    private var unsent: [UInt8] = []
    private var phase = Phase.listening
    /// True if the server hangs up once everything is sent.
    private var isEnding = false
    private var owesSince: ContinuousClock.Instant?

    init(number: UInt64, socket: Socket, timeout: Duration, now: ContinuousClock.Instant) {
        self.number = number
        self.socket = socket
        self.timeout = timeout
        lastActivity = now
    }

    /// The time at which the server hangs up. Nil while the client owes nothing: an idle connection may stay, and so may one
    /// that waits for a reply.
    var deadline: ContinuousClock.Instant? { owesSince.map { $0 + timeout } }

    var isAwaitingReply: Bool { phase == .awaitingReply }

    var isSubscriber: Bool {
        switch phase {
        case .subscribing, .subscribed: true
        case .listening, .awaitingReply: false
        }
    }

    /// Bytes of unfinished requests.
    var heldBytes: Int { received.count }

    /// The events for poll(2). While an answer is due or unread, no more requests are read.
    var events: Int16 {
        if !unsent.isEmpty { return Int16(POLLOUT) }
        return phase == .listening ? Int16(POLLIN) : 0
    }

    /// Reads or writes, as poll(2) allows. Returns false if the client has hung up.
    /// - Parameter allowance: the most bytes of requests that may be held afterwards.
    func transfer(_ ready: Int16, allowance: Int, now: ContinuousClock.Instant) -> Bool {
        lastActivity = now
        if ready & Int16(POLLIN) != 0 { return receive(allowance: allowance) }
        // POLLHUP: both directions are closed (unix_poll of the kernel). A request that was read is still carried out.
        return ready & Int16(POLLHUP | POLLERR | POLLNVAL) == 0 && flush()
    }

    /// Returns the next complete request. Answers invalid lines itself.
    func takeRequest() -> ControlRequest? {
        do throws(LineBuffer.Failure) {
            while phase == .listening, unsent.isEmpty, !isEnding,
                let parsed = try received.takeLine({ ControlMessage.request(line: $0) })
            {
                owesSince = nil
                switch parsed {
                case .success(let request): return request
                case .failure(let problem): answer(.error(problem))
                }
            }
        } catch {
            answer(
                .error(
                    ControlFailure(.requestTooLong, "a request of over \(ControlMessage.maximumRequestSize) bytes")))
            isEnding = true
        }
        return nil
    }

    /// Notes that the handler has the request.
    func await(_ request: ControlRequest) {
        if case .events = request { phase = .subscribing(held: []) } else { phase = .awaitingReply }
    }

    /// Sends the handler's reply.
    func deliver(reply line: [UInt8], isRefusal: Bool) {
        unsent += line
        if case .subscribing(let held) = phase, !isRefusal {
            unsent += held
            phase = .subscribed
        } else {
            phase = .listening
        }
        flushOrEnd()
    }

    /// Sends an event to a subscriber. Returns false if too much is unread.
    func deliver(event line: [UInt8]) -> Bool {
        switch phase {
        case .listening, .awaitingReply: return true
        case .subscribing(let held):
            phase = .subscribing(held: held + line)
            return held.count <= Self.maximumUnreadEvents
        case .subscribed:
            unsent += line
            flushOrEnd()
            return unsent.count <= Self.maximumUnreadEvents
        }
    }

    /// Sends an answer of the server's own.
    func answer(_ response: ControlResponse) {
        unsent += ControlMessage.line(of: response)
        flushOrEnd()
    }

    /// Starts or stops the client's timeout. Returns false if the connection is over.
    func settle(now: ContinuousClock.Instant) -> Bool {
        let isIncomplete = phase == .listening && received.isHoldingPart
        if phase != .subscribed && !unsent.isEmpty || isIncomplete {
            if owesSince == nil { owesSince = now }
        } else {
            owesSince = nil
        }
        return !(unsent.isEmpty && phase == .listening && isEnding)
    }

    /// Reads one piece. Returns false at the end of the stream. Nothing is owed then: requests are read only after the
    /// answer to the one before.
    private func receive(allowance: Int) -> Bool {
        let count = received.fill { buffer in
            recv(socket.fd, buffer.baseAddress, buffer.count, 0)
        }
        if count < 0 { return isTemporary(errno) }
        if count == 0 { return false }
        if received.count > allowance {
            answer(.error(ControlFailure(.busy, "too many long requests at a time")))
            isEnding = true
        }
        return true
    }

    private func flushOrEnd() {
        guard !flush() else { return }
        unsent = []
        isEnding = true
        phase = .listening
    }

    /// Sends what the socket takes. Returns false if the client has hung up.
    private func flush() -> Bool {
        while !unsent.isEmpty {
            let count = unsent.withUnsafeBytes { send(socket.fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count >= 0 else { return isTemporary(errno) }
            unsent.removeFirst(count)
        }
        return true
    }

    private func isTemporary(_ error: Int32) -> Bool { error == EAGAIN || error == EINTR }
}
