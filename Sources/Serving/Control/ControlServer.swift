internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The control socket of one mount. One thread accepts clients, and each client has a thread of its own.
///
/// It answers only the daemon's own user and root. A slow or silent client, or one with invalid lines, delays none of
/// the others. If the run-time directory is removed, as at a user's last logout, the server makes the socket again,
/// there or in the next directory in which clients look.
package final class ControlServer: Sendable {
    /// A handler of requests, called on the client's thread. It must not block, because the thread keeps its place
    /// until the handler returns. It calls `reply` once, on any thread at any later time.
    package typealias Handler =
        @Sendable (ControlRequest, _ reply: @escaping @Sendable (ControlResponse) -> Void) -> Void

    /// The longest time that a line may stay incomplete, or an answer unread.
    package static let clientTimeout: Duration = .seconds(5)
    /// The most clients, and so the most threads of clients. For one more, the server hangs up on another.
    static let maximumClients = 96
    /// The most subscribers among them. One more is refused.
    static let maximumSubscribers = 32
    /// The most bytes of incomplete requests, for all clients together.
    static let maximumHeldBytes = 16 << 20

    /// The time until a removed socket is made again, because the removal of its directory may still be running.
    static let renewalDelay: Duration = .seconds(1)
    /// The time until the next try if the socket could not be made again.
    private static let retryDelay: Duration = .seconds(60)

    let timeout: Duration
    /// The number of bytes of incomplete requests, of all clients together.
    let heldBytes = Atomic<Int>(0)
    /// All clients whose threads have not ended.
    let clients = Monitor<[ControlConnection]>([])
    private let name: Component
    private let makeDirectory: @Sendable () throws(ControlError) -> RuntimeDirectory
    private let log: @Sendable (String) -> Void
    /// Nil once the socket was removed.
    private let currentSocket: Mutex<ControlSocket?>
    private let thread = Mutex<BackgroundThread?>(nil)

    /// Binds and listens. Clients wait for an answer until `start`.
    /// - Parameters:
    ///   - directory: opens the run-time directory, or makes it. Called again, on the server's thread, if it is
    ///     removed.
    ///   - mountpoint: an absolute path without links, as bytes.
    ///   - log: called on the server's thread when the socket was made again, or could not be.
    /// - Throws: `system`, and the errors of `directory`.
    package init(
        directory: @escaping @Sendable () throws(ControlError) -> RuntimeDirectory, mountpoint: [UInt8],
        timeout: Duration = clientTimeout, log: @escaping @Sendable (String) -> Void = { _ in }
    ) throws(ControlError) {
        self.timeout = timeout
        self.log = log
        makeDirectory = directory
        name = RuntimeDirectory.socketName(mountpoint: mountpoint)
        currentSocket = Mutex(try ControlSocket(name, in: directory()))
    }

    deinit { removeSocket() }

    /// Nil once the socket was removed.
    var socket: ControlSocket? { currentSocket.withLock { $0 } }

    /// Makes a removed socket again. Returns the time of the next try. Nil to wait for the next event.
    func renewSocket(now: ContinuousClock.Instant) -> ContinuousClock.Instant? {
        guard let old = socket, old.isMissing else { return nil }
        do throws(ControlError) {
            let directory = try makeDirectory()
            let new = try ControlSocket(name, in: directory)
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

    /// Starts the thread that accepts clients.
    /// - Throws: `system`.
    package func start(handler: @escaping Handler) throws(ControlError) {
        do throws(StoreError) {
            let started = try BackgroundThread(blocksSignals: true) { [self] in acceptClients(handler) }
            thread.withLock { $0 = started }
        } catch {
            throw .system(error.errno, "cannot start a thread for", FilePath(bytes: name.bytes))
        }
    }

    /// Returns once the socket is removed.
    private func acceptClients(_ handler: @escaping Handler) {
        // The time at which to check the socket's name. Set while the name may have been removed.
        var renewsAt: ContinuousClock.Instant?
        while let socket {
            // A negative descriptor is skipped (poll(2)).
            var descriptors = [socket.listener.fd, socket.watch?.descriptor.fd ?? -1].map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            poll(&descriptors, 2, renewsAt.map { ($0 - .now).pollTimeout } ?? -1)
            if descriptors[0].revents != 0 { accept(socket.listener, handler) }
            if descriptors[1].revents != 0, socket.watch?.readChange() == true { renewsAt = .now + Self.renewalDelay }
            if let renewal = renewsAt, renewal <= .now { renewsAt = renewSocket(now: .now) }
        }
    }

    private func accept(_ listener: Descriptor, _ handler: @escaping Handler) {
        let fd = Glibc.accept(listener.fd, nil, nil)
        guard fd >= 0 else {
            // Without descriptors or memory, the ready listener would make the thread spin.
            if [EMFILE, ENFILE, ENOMEM, ENOBUFS].contains(errno) { sleep(1) }
            return
        }
        let socket = Descriptor(owning: fd)
        // Swift's Glibc lacks accept4(2).
        guard fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, fcntl(fd, F_SETFL, O_NONBLOCK) == 0 else { return }
        guard let peer = try? socket.peer(), peer.userID == geteuid() || peer.userID == 0 else { return }
        makeRoom()
        // Without a descriptor for the waker, hang up.
        guard let client = try? ControlConnection(socket, of: self) else { return }
        clients.update { $0.append(client) }
        do throws(StoreError) {
            let thread = try BackgroundThread(blocksSignals: true) { [self] in
                client.run(handler)
                remove(client)
            }
            thread.detach()
        } catch {
            remove(client)
            let answer = jsonLine(ControlFailure(.failed, "cannot start a thread: \(error.errno)"))
            _ = try? answer.withBytes(socket.send)
        }
    }

    private func remove(_ client: ControlConnection) { clients.update { $0.removeAll { $0 === client } } }

    /// Waits until a client has a place. Hangs up on the one silent for longest, and on one that waits for a reply only
    /// if there is no other.
    private func makeRoom() {
        while clients.access({ $0.count }) >= Self.maximumClients {
            let all = clients.access { $0 }.map { (client: $0, state: $0.state.withLock { $0 }) }
            let silent = all.min { ($0.state.use, $0.state.lastActivity) < ($1.state.use, $1.state.lastActivity) }
            if let silent, silent.state.use < .subscribing { silent.client.hangUp() }
            // Only a thread that has ended leaves its place.
            _ = clients.wait(until: .now + .seconds(1)) { $0.count < Self.maximumClients ? true : nil }
        }
    }

    var subscribers: [ControlConnection] {
        clients.access { $0 }.filter { client in client.state.withLock { $0.isSubscriber } }
    }

    /// Sends an event to every subscriber, as far as its socket has room. Any thread. Never blocks.
    package func broadcast(_ event: ControlEvent) {
        let subscribers = subscribers
        // Without subscribers, events are not even encoded.
        guard !subscribers.isEmpty else { return }
        let line = jsonLine(event)
        for subscriber in subscribers { subscriber.deliver(event: line) }
    }

    /// Removes the socket, hangs up on every client, and waits for all threads to end.
    package func stop() {
        removeSocket()
        thread.withLock { $0.take() }?.join()
        for client in clients.access({ $0 }) { client.hangUp() }
        clients.wait { $0.isEmpty ? () : nil }
    }

    /// Removes the socket, and accepts no more clients. Connected ones stay.
    package func removeSocket() { currentSocket.withLock { $0.take() }?.remove() }
}
