internal import Glibc

/// One client of a `ControlServer`; on the server's thread only. Never blocks.
final class ControlConnection {
    /// What a subscriber may leave unread, in bytes, before it is hung up on.
    static let maximumUnreadEvents = 256 << 10

    private enum Phase: Equatable {
        /// Requests are read.
        case listening
        /// The handler has a request: nothing more is read until its reply is there.
        case awaitingReply
        /// The same for `events`; the events that came meanwhile are held back.
        case subscribing(held: [UInt8])
        case subscribed
    }

    let number: UInt64
    let socket: Socket
    private let patience: Duration
    /// When the client last sent or took something.
    private(set) var lastActivity: ContinuousClock.Instant
    private let received = LineBuffer(maximumLineSize: ControlMessage.maximumRequestSize)
    private var unsent: [UInt8] = []
    private var phase = Phase.listening
    /// To be hung up on when all is sent.
    private var isEnding = false
    private var owesSince: ContinuousClock.Instant?

    init(number: UInt64, socket: Socket, patience: Duration, now: ContinuousClock.Instant) {
        self.number = number
        self.socket = socket
        self.patience = patience
        lastActivity = now
    }

    /// When to give up on the client; nil while it owes nothing: an idle connection may stay, and so may one that waits
    /// for us.
    var deadline: ContinuousClock.Instant? { owesSince.map { $0 + patience } }

    var isAwaitingReply: Bool { phase == .awaitingReply }

    var isSubscriber: Bool {
        switch phase {
        case .subscribing, .subscribed: true
        case .listening, .awaitingReply: false
        }
    }

    /// How much of requests is held, in bytes.
    var heldBytes: Int { received.count }

    /// What to poll for, beside a client that has gone. While an answer is due or unread no more requests are read.
    var events: Int16 {
        if !unsent.isEmpty { return Int16(POLLOUT) }
        return phase == .listening ? Int16(POLLIN) : 0
    }

    /// Moves what the socket is ready for. False: the client has gone.
    /// - Parameter allowance: how many bytes of requests may be held after it.
    func transfer(_ ready: Int16, allowance: Int, now: ContinuousClock.Instant) -> Bool {
        lastActivity = now
        if ready & Int16(POLLIN) != 0 { return receive(allowance: allowance) }
        // POLLHUP: both directions are closed (unix_poll of the kernel); what it has asked for goes on.
        return ready & Int16(POLLHUP | POLLERR | POLLNVAL) == 0 && flush()
    }

    /// The next request that has arrived, one at a time; lines that are none are answered here.
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

    /// From now on its reply is awaited.
    func await(_ request: ControlRequest) {
        if case .events = request { phase = .subscribing(held: []) } else { phase = .awaitingReply }
    }

    /// The handler's reply.
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

    /// An event, where the client has asked for them. False: it leaves too much unread.
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

    /// Answers without a handler.
    func answer(_ response: ControlResponse) {
        unsent += ControlMessage.line(of: response)
        flushOrEnd()
    }

    /// Looks what the client owes. False: the connection is over.
    func settle(now: ContinuousClock.Instant) -> Bool {
        let isHalfSaid = phase == .listening && received.isHoldingPart
        if phase != .subscribed && !unsent.isEmpty || isHalfSaid {
            if owesSince == nil { owesSince = now }
        } else {
            owesSince = nil
        }
        return !(unsent.isEmpty && phase == .listening && isEnding)
    }

    /// Reads one piece. False at the end of the stream: whatever was asked for has been answered then, since nothing is
    /// read before.
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

    /// Sends what the socket takes. False when the client is gone.
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
