internal import Glibc
internal import SystemPackage

/// One client of a `ControlServer`; on the server's thread only. Never blocks.
struct ControlConnection {
    /// How long an incomplete line may stay incomplete, and an answer unread.
    static let patience: Duration = .seconds(5)

    let socket: Socket
    /// When the client last sent or took something.
    private(set) var lastActivity: ContinuousClock.Instant
    private var received = LineBuffer(maximumLineSize: ControlMessage.maximumRequestSize)
    private var unsent: [UInt8] = []
    private var isEnding = false
    private var waitingSince: ContinuousClock.Instant?

    init(socket: Socket, now: ContinuousClock.Instant) {
        self.socket = socket
        lastActivity = now
    }

    /// When to give up on the client; nil while it owes nothing: an idle connection may stay.
    var deadline: ContinuousClock.Instant? { waitingSince.map { $0 + Self.patience } }

    /// What to poll for. While an answer is unread no more requests are read.
    var events: Int16 { Int16(unsent.isEmpty ? POLLIN : POLLOUT) }

    /// Does what the socket is ready for. False: the connection is over.
    mutating func serve(now: ContinuousClock.Instant, handler: ControlServer.Handler) -> Bool {
        lastActivity = now
        guard unsent.isEmpty ? receive() : flush() else { return false }
        answer(handler)
        guard flush() else { return false }
        let isWaiting = !unsent.isEmpty || received.isHoldingPart
        if !isWaiting {
            waitingSince = nil
        } else if waitingSince == nil {
            waitingSince = now
        }
        return !(isEnding && unsent.isEmpty)
    }

    /// Answers the lines that have arrived, one at a time while the client takes the answers.
    private mutating func answer(_ handler: ControlServer.Handler) {
        do throws(LineBuffer.Failure) {
            while unsent.isEmpty, !isEnding, let line = try received.nextLine() {
                waitingSince = nil
                switch ControlMessage.request(line: line) {
                case .success(let request): unsent = ControlMessage.line(of: handler(request))
                case .failure(let problem): unsent = ControlMessage.line(of: .error(problem.reason))
                }
                if !flush() { isEnding = true }
            }
        } catch {
            unsent = ControlMessage.line(
                of: .error("a request of over \(ControlMessage.maximumRequestSize) bytes"))
            isEnding = true
        }
    }

    /// Reads one piece. False at the end of the stream.
    private mutating func receive() -> Bool {
        var piece = [UInt8](repeating: 0, count: 16384)
        let count = recv(socket.fd, &piece, piece.count, 0)
        guard count > 0 else { return count < 0 && isTemporary(errno) }
        received.append(piece[..<count])
        return true
    }

    /// Sends what the socket takes. False when the client is gone.
    private mutating func flush() -> Bool {
        while !unsent.isEmpty {
            let count = unsent.withUnsafeBytes { send(socket.fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            guard count >= 0 else { return isTemporary(errno) }
            unsent.removeFirst(count)
        }
        return true
    }

    private func isTemporary(_ error: Int32) -> Bool { error == EAGAIN || error == EINTR }
}
