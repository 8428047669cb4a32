internal import LinuxSystem
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
        /// True ends the loop.
        var isClosed = false
    }

    /// Readable while there are items, or after `close`.
    let waker: Waker
    private let state = Mutex(State())
    /// So that events nobody listens to cost nothing.
    let subscribers = Atomic<Int>(0)

    init() throws(Errno) {
        do throws(StoreError) { waker = try Waker() } catch { throw error.errno }
    }

    func post(_ item: Item) {
        state.withLock { state in
            guard !state.isClosed else { return }
            if case .event(let line) = item {
                // A loop that is not given the processor: its subscribers miss what they could not have been sent.
                guard state.eventBytes <= ControlConnection.maximumUnreadEvents else { return }
                state.eventBytes += line.count
            }
            let isFirst = state.items.isEmpty
            state.items.append(item)
            if isFirst { waker.wake() }
        }
    }

    /// All that was posted, oldest first; nil at the end.
    func take() -> [Item]? {
        // First, so that an item posted from now on wakes the loop again.
        waker.clear()
        return state.withLock { state in
            guard !state.isClosed else { return nil }
            defer { (state.items, state.eventBytes) = ([], 0) }
            return state.items
        }
    }

    /// Ends the loop. Again: nothing.
    func close() {
        state.withLock { $0.isClosed = true }
        waker.wake()
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
