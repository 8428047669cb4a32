internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// The loop of a `ControlServer`'s thread. While all clients owe nothing, poll(2) waits without a timeout.
struct ControlLoop {
    private let server: ControlServer
    private let handler: ControlServer.Handler
    private var connections: [ControlConnection] = []
    private var lastNumber: UInt64 = 0
    /// The time at which to accept again. Set if descriptors run out, when the ready listener would make the loop spin.
    private var acceptsFrom: ContinuousClock.Instant?
    /// The time at which to check the socket's name. Set while the name may have been removed.
    private var renewsAt: ContinuousClock.Instant?

    init(server: ControlServer, handler: @escaping ControlServer.Handler) {
        (self.server, self.handler) = (server, handler)
    }

    /// Returns when the server is stopped.
    mutating func run() {
        while true {
            let socket = server.socket
            // A negative descriptor is skipped (poll(2)).
            let listener = acceptsFrom == nil ? socket?.listener.fd : nil
            var descriptors = [server.waker.fd, listener ?? -1, socket?.watchDescriptor ?? -1].map {
                pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
            }
            descriptors += connections.map { pollfd(fd: $0.socket.fd, events: $0.events, revents: 0) }
            guard poll(&descriptors, nfds_t(descriptors.count), timeout()) >= 0 || errno == EINTR else { return }
            let now = ContinuousClock.now
            // Serve the clients first, while `connections` still matches `descriptors`.
            transfer(descriptors[3...], now: now)
            if descriptors[0].revents != 0 {
                guard let messages = server.removeMessages() else { return }
                deliver(messages)
            }
            for connection in connections { serve(connection) }
            connections.removeAll { $0.updateTimeout(now: now) }
            countSubscribers()
            if let pause = acceptsFrom, pause <= now { acceptsFrom = nil }
            if descriptors[1].revents != 0, let socket { accept(socket.listener, now: now) }
            if descriptors[2].revents != 0 {
                socket?.clearEvents()
                renewsAt = now + ControlServer.renewalDelay
            }
            if let renewal = renewsAt, renewal <= now { renewsAt = server.renewSocket(now: now) }
        }
    }

    /// Milliseconds until the next deadline, or −1 for none.
    private func timeout() -> Int32 {
        let next = (connections.map(\.deadline) + [acceptsFrom, renewsAt]).compactMap { $0 }.min()
        return next.map { ($0 - .now).pollTimeout } ?? -1
    }

    private func transfer(_ descriptors: ArraySlice<pollfd>, now: ContinuousClock.Instant) {
        for (connection, descriptor) in zip(connections, descriptors) where descriptor.revents != 0 {
            let others = connections.reduce(-connection.heldBytes) { $0 + $1.heldBytes }
            let allowance = ControlServer.maximumHeldBytes - others
            connection.transfer(descriptor.revents, allowance: allowance, now: now)
        }
    }

    private func deliver(_ messages: [ControlServer.Message]) {
        for message in messages {
            switch message {
            case .reply(let number, let line, let isRefusal):
                connections.first { $0.number == number }?.deliver(reply: line, isRefusal: isRefusal)
            case .event(let line): for connection in connections { connection.deliver(event: line) }
            case .mark(let isDone): isDone.update { $0 = true }
            }
        }
    }

    private func serve(_ connection: ControlConnection) {
        while let request = connection.nextRequest() {
            if case .events = request, subscriberCount >= ControlServer.maximumSubscribers {
                connection.refuse(ControlFailure(.busy, "too many clients listen to events"))
                continue
            }
            connection.await(request)
            // Scrub the thread now: the request may contain a secret, and a lock may follow once the handler has it.
            linux_scrub_thread()
            // Count before the handler reads the state, so that this client gets every later event.
            countSubscribers()
            let reply = ControlReply(server: server, connection: connection.number)
            handler(request) { reply.send($0) }
        }
    }

    private var subscriberCount: Int { connections.count(where: \.isSubscriber) }

    private func countSubscribers() { server.subscribers.store(subscriberCount, ordering: .sequentiallyConsistent) }

    private mutating func accept(_ listener: Descriptor, now: ContinuousClock.Instant) {
        let fd = Glibc.accept(listener.fd, nil, nil)
        guard fd >= 0 else {
            if [EMFILE, ENFILE, ENOMEM, ENOBUFS].contains(errno) { acceptsFrom = now + .seconds(1) }
            return
        }
        let socket = Descriptor(owning: fd)
        // Swift's Glibc lacks accept4(2).
        guard fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, fcntl(fd, F_SETFL, O_NONBLOCK) == 0 else { return }
        guard let peer = try? socket.peer(), peer.userID == geteuid() || peer.userID == 0 else { return }
        makeRoom()
        lastNumber += 1
        connections.append(ControlConnection(number: lastNumber, socket: socket, timeout: server.timeout, now: now))
    }

    /// Hangs up on the client silent for longest. Clients waiting for a reply are chosen only if there are no others.
    private mutating func makeRoom() {
        let others = connections.filter { !$0.isSubscriber }
        guard others.count >= ControlServer.maximumConnections else { return }
        let idle = others.filter { !$0.isAwaitingReply }
        let silent = (idle.isEmpty ? others : idle).min { $0.lastActivity < $1.lastActivity }
        connections.removeAll { $0.number == silent?.number }
    }
}
