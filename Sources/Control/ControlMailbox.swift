internal import Glibc
internal import Synchronization
internal import SystemPackage

/// What other threads hand to a server's loop: replies and events, in their order. Any thread; never blocks.
final class ControlMailbox: Sendable {
    enum Item: Sendable {
        /// To the connection of that number. `isRefusal`: nothing was begun.
        case reply(connection: UInt64, line: [UInt8], isRefusal: Bool)
        case event([UInt8])
    }

    private struct State {
        var items: [Item] = []
        var eventBytes = 0
        /// Closing it ends the loop.
        var trigger: Socket?
    }

    /// Readable while there is something to take, or the end has come.
    let signal: Socket
    private let state: Mutex<State>
    /// So that events nobody listens to cost nothing.
    let subscribers = Atomic<Int>(0)

    init() throws(Errno) {
        var ends: [Int32] = [-1, -1]
        let flags = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
        try checked(socketpair(AF_UNIX, Int32(flags), 0, &ends))
        signal = Socket(owning: ends[0])
        state = Mutex(State(trigger: Socket(owning: ends[1])))
    }

    func post(_ item: Item) {
        state.withLock { state in
            guard let trigger = state.trigger else { return }
            if case .event(let line) = item {
                // A loop that is not given the processor: its subscribers miss what they could not have been sent.
                guard state.eventBytes <= ControlConnection.maximumUnreadEvents else { return }
                state.eventBytes += line.count
            }
            let isFirst = state.items.isEmpty
            state.items.append(item)
            // One byte wakes for all.
            if isFirst { send(trigger.fd, [0], 1, Int32(MSG_NOSIGNAL)) }
        }
    }

    /// All that was posted, oldest first; nil at the end.
    func take() -> [Item]? {
        var bytes: [UInt8] = [0, 0, 0, 0]
        // Before the items are taken: a byte sent from now on is for later ones.
        _ = recv(signal.fd, &bytes, bytes.count, 0)
        return state.withLock { state in
            guard state.trigger != nil else { return nil }
            defer { (state.items, state.eventBytes) = ([], 0) }
            return state.items
        }
    }

    /// Ends the loop. Again: nothing.
    func close() {
        state.withLock { $0.trigger = nil }
    }
}

/// The one answer to one request. Any thread. A request that nobody answers is answered when the last holder lets go.
final class ControlReply: Sendable {
    private let mailbox: ControlMailbox
    private let connection: UInt64
    private let isSent = Atomic(false)

    init(mailbox: ControlMailbox, connection: UInt64) {
        self.mailbox = mailbox
        self.connection = connection
    }

    deinit {
        send(.error(ControlFailure(.failed, "the request was given up")))
    }

    /// Only the first counts.
    func send(_ response: ControlResponse) {
        guard !isSent.exchange(true, ordering: .relaxed) else { return }
        var isRefusal = false
        if case .error = response { isRefusal = true }
        mailbox.post(.reply(connection: connection, line: ControlMessage.line(of: response), isRefusal: isRefusal))
    }
}
