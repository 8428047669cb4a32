internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The control socket of one mount, served by one thread.
///
/// It answers only the daemon's own user and root. A slow or silent client, or one with invalid lines, delays none of
/// the others. If the run-time directory is removed, as at a user's last logout, the server makes the socket again,
/// there or in the next directory in which clients look.
package final class ControlServer: Sendable {
    /// A handler of requests, called on the server's thread, so it must not block. `reply` may be called on any thread
    /// at any later time. Only its first call counts.
    package typealias Handler =
        @Sendable (ControlRequest, _ reply: @escaping @Sendable (ControlResponse) -> Void) -> Void

    /// A message from another thread for the loop.
    enum Message: Sendable {
        /// For the connection with this number. `isRefusal`: the request was not done.
        case reply(connection: UInt64, line: [UInt8], isRefusal: Bool)
        case event([UInt8])
        /// Set to true by the loop once it has sent all earlier messages, as far as the clients' sockets had room.
        case mark(Monitor<Bool>)
    }

    private struct Mailbox {
        var messages: [Message] = []
        var eventBytes = 0
        /// True makes the loop end.
        var isClosed = false
    }

    /// The longest time that a line may stay incomplete, or an answer unread.
    package static let clientTimeout: Duration = .seconds(5)
    /// The most clients, not counting subscribers. For one more, the server hangs up on the client longest silent.
    static let maximumConnections = 64
    /// The most subscribers. One more is refused.
    static let maximumSubscribers = 32
    /// The most bytes of incomplete requests, for all clients together.
    static let maximumHeldBytes = 16 << 20

    /// The time until a removed socket is made again, because the removal of its directory may still be running.
    static let renewalDelay: Duration = .seconds(1)
    /// The time until the next try if the socket could not be made again.
    private static let retryDelay: Duration = .seconds(60)

    let timeout: Duration
    /// Readable while there are messages, or after `stop`.
    let waker: Waker
    /// The number of subscribers. While it is 0, events are not even encoded.
    let subscribers = Atomic<Int>(0)
    private let mailbox = Mutex(Mailbox())
    private let name: Component
    private let makeDirectory: @Sendable () throws(ControlError) -> RuntimeDirectory
    private let log: @Sendable (String) -> Void
    /// Nil once the socket was removed.
    private let currentSocket: Mutex<ControlSocket?>
    private let thread = Mutex<BackgroundThread?>(nil)

    /// Binds and listens. Clients wait for an answer until `start`.
    /// - Parameters:
    /// - directory: opens the run-time directory, or makes it. Called again, on the server's thread, if it is removed.
    ///   - mountpoint: an absolute path without links, as bytes.
    /// - log: called on the server's thread when the socket was made again, or could not be.
    /// - Throws: `system`, and the errors of `directory`.
    package init(
        directory: @escaping @Sendable () throws(ControlError) -> RuntimeDirectory, mountpoint: [UInt8],
        timeout: Duration = clientTimeout, log: @escaping @Sendable (String) -> Void = { _ in }
    ) throws(ControlError) {
        self.timeout = timeout
        self.log = log
        makeDirectory = directory
        name = RuntimeDirectory.socketName(mountpoint: mountpoint)
        let directory = try directory()
        currentSocket = Mutex(try Self.makeSocket(name, in: directory))
        do throws(StoreError) { waker = try Waker() } catch {
            throw .system(error.errno, "cannot make the control socket in", directory.path)
        }
    }

    deinit { removeSocket() }

    private static func makeSocket(
        _ name: Component, in directory: RuntimeDirectory
    ) throws(ControlError) -> ControlSocket {
        do throws(StoreError) { return try ControlSocket(name, in: directory) } catch {
            throw .system(error.errno, "cannot make the control socket in", directory.path)
        }
    }

    /// Nil once the socket was removed.
    var socket: ControlSocket? { currentSocket.withLock { $0 } }

    /// Makes a removed socket again. Returns the time of the next try. Nil to wait for the next event.
    func renewSocket(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        guard let old = socket, old.isMissing else { return nil }
        do throws(ControlError) {
            let directory = try makeDirectory()
            let new = try Self.makeSocket(name, in: directory)
            let isWanted = currentSocket.withLock { current in
                defer { if current != nil { current = new } }
                return current != nil
            }
            if isWanted {
                log("the control socket was removed: the new one is in \(directory.path)")
            } else {
                new.remove()
            }
            return nil
        } catch {
            log("the control socket was removed, so only signals and lock files reach this mount: \(error)")
            return now + Self.retryDelay
        }
    }

    /// Starts the thread that answers.
    /// - Throws: `system`.
    package func start(handler: @escaping Handler) throws(ControlError) {
        do throws(StoreError) {
            let started = try BackgroundThread(blocksSignals: true) { [self] in
                var loop = ControlLoop(server: self, handler: handler)
                loop.run()
            }
            thread.withLock { $0 = started }
        } catch {
            throw .system(error.errno, "cannot start a thread for", FilePath(bytes: name.bytes))
        }
    }

    /// Sends an event to every subscriber. Any thread. Never blocks.
    package func broadcast(_ event: ControlEvent) {
        guard subscribers.load(ordering: .sequentiallyConsistent) > 0 else { return }
        post(.event(jsonLine(event)))
    }

    /// Waits, for at most 1 s, until the loop has sent all broadcast events, as far as the clients' sockets have room.
    package func flush() {
        guard subscribers.load(ordering: .sequentiallyConsistent) > 0 else { return }
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
    package func removeSocket() { currentSocket.withLock { $0.take() }?.remove() }

    /// Leaves a message for the loop. Any thread. Never blocks.
    fileprivate func post(_ message: Message) {
        mailbox.withLock { mailbox in
            guard !mailbox.isClosed else { return }
            if case .event(let line) = message {
                // Drop the event. The loop gets no processor time, so its subscribers have too much unread anyway.
                guard mailbox.eventBytes <= ControlConnection.maximumUnreadEvents else { return }
                mailbox.eventBytes += line.count
            }
            mailbox.messages.append(message)
            if mailbox.messages.count == 1 { waker.wake() }
        }
    }

    /// Removes all messages, and returns them with the oldest first. Nil after `stop`.
    func removeMessages() -> [Message]? {
        // Clear first, so that a message posted from now on wakes the loop again.
        waker.clear()
        return mailbox.withLock { mailbox in
            guard !mailbox.isClosed else { return nil }
            defer { mailbox = Mailbox() }
            return mailbox.messages
        }
    }
}

/// The only answer to a request. Any thread. If it is released unsent, the client gets a failure.
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
