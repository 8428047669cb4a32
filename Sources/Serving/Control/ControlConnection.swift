internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// One client of a `ControlServer`. Used by the server's thread only. Never blocks.
final class ControlConnection {
    /// The number of unread bytes at which the server hangs up on a subscriber.
    static let maximumUnreadEvents = 256 << 10

    private enum Phase {
        case listening
        /// The handler has a request. The next one is read only after its reply is sent.
        case awaitingReply
        /// The handler has `events`. Events wait in `held` until its reply is sent.
        case subscribing
        case subscribed
    }

    let number: UInt64
    let socket: Descriptor
    private let timeout: Duration
    /// The time at which the client last sent or received something.
    private(set) var lastActivity: ContinuousClock.Instant
    private let received = LineBuffer(maximumLineSize: ControlRequest.maximumSize)
    private var unsent: [UInt8] = []
    private var held: [UInt8] = []
    private var phase = Phase.listening
    /// True if the server hangs up once everything is sent.
    private var isEnding = false
    /// The time at which the server hangs up. Nil while the client owes nothing, so an idle connection may stay, and so
    /// may one waiting for a reply.
    private(set) var deadline: ContinuousClock.Instant?

    init(number: UInt64, socket: Descriptor, timeout: Duration, now: ContinuousClock.Instant) {
        self.number = number
        self.socket = socket
        self.timeout = timeout
        lastActivity = now
    }

    var isAwaitingReply: Bool { phase == .awaitingReply }

    var isSubscriber: Bool { phase == .subscribing || phase == .subscribed }

    /// Bytes of unfinished requests.
    var heldBytes: Int { received.count }

    /// The events for poll(2). While an answer is due or unread, further requests stay in the socket.
    var events: Int16 {
        if !unsent.isEmpty { return Int16(POLLOUT) }
        return phase == .listening ? Int16(POLLIN) : 0
    }

    /// Reads or writes, as poll(2) allows.
    /// - Parameter allowance: the most bytes of requests to hold afterwards.
    func transfer(_ ready: Int16, allowance: Int, now: ContinuousClock.Instant) {
        lastActivity = now
        if ready & Int16(POLLIN) != 0 {
            receive(allowance: allowance)
        } else if ready & Int16(POLLHUP | POLLERR | POLLNVAL) != 0 {
            // Both directions are closed (unix_poll of the kernel). A request already read is still carried out.
            end()
        } else {
            flush()
        }
    }

    /// Returns the next complete request. Answers invalid lines itself.
    func nextRequest() -> ControlRequest? {
        do throws(LineBuffer.Failure) {
            while phase == .listening, unsent.isEmpty, !isEnding,
                let parsed = try received.withNextLine({ line in
                    Result { () throws(ControlFailure) in try ControlRequest.parse(line) }
                })
            {
                deadline = nil
                do throws(ControlFailure) { return try parsed.get() } catch { refuse(error) }
            }
        } catch {
            isEnding = true
            refuse(ControlFailure(.requestTooLong, "a request of over \(ControlRequest.maximumSize) bytes"))
        }
        return nil
    }

    /// Records that the handler has the request.
    func await(_ request: ControlRequest) { phase = if case .events = request { .subscribing } else { .awaitingReply } }

    /// Sends the handler's reply.
    func deliver(reply line: [UInt8], isRefusal: Bool) {
        phase = phase == .subscribing && !isRefusal ? .subscribed : .listening
        unsent += line
        if phase == .subscribed { unsent += held }
        held = []
        flush()
    }

    /// Sends an event to a subscriber, or hangs up if the subscriber has left too much unread.
    func deliver(event line: [UInt8]) {
        guard isSubscriber else { return }
        if phase == .subscribing { held += line } else { unsent += line }
        flush()
        if max(held.count, unsent.count) > Self.maximumUnreadEvents { end() }
    }

    /// Sends an answer of the server itself, without the handler.
    func refuse(_ failure: ControlFailure) {
        unsent += jsonLine(failure)
        flush()
    }

    /// Starts or stops the client's timeout. Returns true if the connection must be closed.
    func updateTimeout(now: ContinuousClock.Instant) -> Bool {
        let isIncomplete = phase == .listening && received.count > 0
        if phase != .subscribed && !unsent.isEmpty || isIncomplete {
            if deadline == nil { deadline = now + timeout }
        } else {
            deadline = nil
        }
        return (isEnding && unsent.isEmpty && phase == .listening) || deadline.map { $0 <= now } ?? false
    }

    /// Reads one piece. At the end of the stream no answer is owed: the server reads only after the previous answer.
    private func receive(allowance: Int) {
        do throws(StoreError) {
            let count = try received.fill { (room) throws(StoreError) in
                try retrying { recv(socket.fd, room.baseAddress, room.count, 0) }
            }
            if count == 0 { return end() }
        } catch {
            return error.errno == .wouldBlock ? () : end()
        }
        guard received.count > allowance else { return }
        isEnding = true
        refuse(ControlFailure(.busy, "too many long requests at a time"))
    }

    /// Sends as much as the socket accepts.
    private func flush() {
        while !unsent.isEmpty {
            let count = unsent.withUnsafeBytes { send(socket.fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count >= 0 {
                unsent.removeFirst(count)
            } else {
                if errno != EAGAIN && errno != EINTR { end() }
                return
            }
        }
    }

    /// Hangs up without sending more.
    private func end() {
        unsent = []
        isEnding = true
        phase = .listening
    }
}
