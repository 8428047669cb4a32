internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// The control socket of one mount, served by one thread.
///
/// It answers only the daemon's own user and root. A client that is slow, silent or sends invalid lines delays no other.
package final class ControlServer: Sendable {
    /// Handles a request on the server's thread, and must not block. `reply` may be called on any thread at any later time.
    /// Only its first call counts.
    package typealias Handler =
        @Sendable (ControlRequest, _ reply: @escaping @Sendable (ControlResponse) -> Void) -> Void

    /// A message from another thread for the loop.
    enum Message: Sendable {
        /// For the connection of that number. `isRefusal`: the request was not done.
        case reply(connection: UInt64, line: [UInt8], isRefusal: Bool)
        case event([UInt8])
        /// Set to true when all messages before have been sent.
        case mark(Monitor<Bool>)
    }

    private struct Mailbox {
        var messages: [Message] = []
        var eventBytes = 0
        /// True ends the loop.
        var isClosed = false
    }

    /// The longest time that a line may stay incomplete, or an answer unread.
    package static let clientTimeout: Duration = .seconds(5)
    /// The most clients without subscribers. One more, and the server hangs up on the one that has been silent longest.
    static let maximumConnections = 64
    /// The most clients that get events. One more is refused.
    static let maximumSubscribers = 32
    /// The most bytes of incomplete requests of all clients.
    static let maximumHeldBytes = 16 << 20

    let listener: Descriptor
    let handler: Handler
    let timeout: Duration
    /// Readable while there are messages, or after `stop`.
    let waker: Waker
    /// The number of clients that get events. Without any, events are not encoded.
    let subscribers = Atomic<Int>(0)
    private let mailbox = Mutex(Mailbox())
    private let directory: RuntimeDirectory
    private let name: String
    private let inode: ino_t
    private let thread = Mutex<BackgroundThread?>(nil)

    /// Binds and listens. Clients wait until `start`.
    /// - Parameter mountpoint: an absolute path without links, as bytes.
    /// - Throws: `system`.
    package init(
        directory: RuntimeDirectory, mountpoint: [UInt8], timeout: Duration = clientTimeout, handler: @escaping Handler
    ) throws(ControlError) {
        self.timeout = timeout
        self.directory = directory
        self.handler = handler
        name = RuntimeDirectory.socketName(mountpoint: mountpoint)
        do throws(StoreError) {
            listener = try .streamSocket(isBlocking: false)
            waker = try Waker()
            inode = try Self.listen(listener, name: name, directory: directory.descriptor)
        } catch {
            throw .system(error.errno, "cannot make the control socket in", directory.path)
        }
    }

    deinit { removeSocket() }

    /// Makes the socket under a temporary name and renames it once it listens, over a dead daemon's socket. So a socket that
    /// refuses connections never has a living owner.
    private static func listen(_ listener: Descriptor, name: String, directory: Descriptor) throws(StoreError) -> ino_t
    {
        let temporary = "\(name).\(getpid())"
        unlinkat(directory.fd, temporary, 0)
        try listener.call(bind, temporary, in: directory)
        do throws(StoreError) {
            try retrying { Glibc.listen(listener.fd, 16) }
            let status = try directory.status(of: Array(temporary.utf8))
            try retrying { renameat(directory.fd, temporary, directory.fd, name) }
            return status.st_ino
        } catch {
            unlinkat(directory.fd, temporary, 0)
            throw error
        }
    }

    /// Starts the thread that answers.
    /// - Throws: `system`.
    package func start() throws(ControlError) {
        do throws(StoreError) {
            let started = try BackgroundThread(blocksSignals: true) { [self] in
                var loop = ControlLoop(server: self)
                loop.run()
            }
            thread.withLock { $0 = started }
        } catch {
            throw .system(error.errno, "cannot start a thread for", directory.path)
        }
    }

    /// Sends an event to every subscriber. Any thread. Never blocks.
    package func broadcast(_ event: ControlEvent) {
        guard subscribers.load(ordering: .sequentiallyConsistent) > 0 else { return }
        post(.event(jsonLine(event)))
    }

    /// Waits until the clients' sockets have taken the events that were broadcast, for at most 1 s.
    package func flush() {
        let isDone = Monitor(false)
        post(.mark(isDone))
        _ = isDone.wait(until: .now + .seconds(1)) { $0 ? true : nil }
    }

    /// Hangs up on every client, waits for the thread to end, and removes the socket.
    package func stop() {
        mailbox.withLock { $0.isClosed = true }
        waker.wake()
        thread.withLock { $0.take() }?.join()
        removeSocket()
    }

    /// Removes the socket's name. Clients stay connected.
    package func removeSocket() { directory.remove(name, inode: inode) }

    /// Leaves a message for the loop. Any thread. Never blocks.
    fileprivate func post(_ message: Message) {
        mailbox.withLock { mailbox in
            guard !mailbox.isClosed else { return }
            if case .event(let line) = message {
                // The loop does not get the processor. Its subscribers would have too much unread anyway.
                guard mailbox.eventBytes <= ControlConnection.maximumUnreadEvents else { return }
                mailbox.eventBytes += line.count
            }
            mailbox.messages.append(message)
            if mailbox.messages.count == 1 { waker.wake() }
        }
    }

    /// Removes all messages, oldest first. Nil after `stop`.
    func removeMessages() -> [Message]? {
        // First, so that a message posted from now on wakes the loop again.
        waker.clear()
        return mailbox.withLock { mailbox in
            guard !mailbox.isClosed else { return nil }
            defer { mailbox = Mailbox() }
            return mailbox.messages
        }
    }
}

/// The only answer to a request. Any thread. If nothing was sent before it is released, it answers with a failure.
final class ControlReply: Sendable {
    private let server: ControlServer
    private let connection: UInt64
    private let isSent = Atomic(false)

    init(server: ControlServer, connection: UInt64) {
        self.server = server
        self.connection = connection
    }

    deinit { send(.error(ControlFailure(.failed, "the request was given up"))) }

    /// Sends the answer. Later calls do nothing.
    func send(_ response: ControlResponse) {
        guard !isSent.exchange(true, ordering: .relaxed) else { return }
        let isRefusal = if case .error = response { true } else { false }
        server.post(.reply(connection: connection, line: jsonLine(response), isRefusal: isRefusal))
    }
}
