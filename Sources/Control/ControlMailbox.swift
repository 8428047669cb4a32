internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Replies and events from other threads for a server's loop, in order. Any thread. Never blocks.
final class ControlMailbox: Sendable {
    enum Item: Sendable {
        /// For the connection of that number. `isRefusal`: the request was not done.
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
    /// The number of clients that get events. Without any, events are not encoded.
    let subscribers = Atomic<Int>(0)

    init() throws(Errno) {
        do throws(StoreError) { waker = try Waker() } catch { throw error.errno }
    }

    func post(_ item: Item) {
        state.withLock { state in
            guard !state.isClosed else { return }
            if case .event(let line) = item {
                // The loop does not get the processor. Its subscribers would have too much unread anyway.
                guard state.eventBytes <= ControlConnection.maximumUnreadEvents else { return }
                state.eventBytes += line.count
            }
            let isFirst = state.items.isEmpty
            state.items.append(item)
            if isFirst { waker.wake() }
        }
    }

    /// Takes all items, oldest first. Nil after `close`.
    func take() -> [Item]? {
        // First, so that an item posted from now on wakes the loop again.
        waker.clear()
        return state.withLock { state in
            guard !state.isClosed else { return nil }
            defer { (state.items, state.eventBytes) = ([], 0) }
            return state.items
        }
    }

    /// Ends the loop.
    func close() {
        state.withLock { $0.isClosed = true }
        waker.wake()
    }
}

/// The only answer to a request. Any thread. If nothing was sent before it is released, it answers with a failure.
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

    /// Sends the answer. Later calls do nothing.
    func send(_ response: ControlResponse) {
        guard !isSent.exchange(true, ordering: .relaxed) else { return }
        var isRefusal = false
        if case .error = response { isRefusal = true }
        mailbox.post(.reply(connection: connection, line: ControlMessage.line(of: response), isRefusal: isRefusal))
    }
}
