internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The loop of a `ControlServer`'s thread. poll(2) has no timeout while no client owes anything.
struct ControlLoop {
    private let server: ControlServer
    private var connections: [ControlConnection] = []
    private var lastNumber: UInt64 = 0
    /// Set while the process is out of descriptors: the listener stays ready, and the loop would spin.
    private var acceptsFrom: ContinuousClock.Instant?

    init(server: ControlServer) {
        self.server = server
    }

    /// Returns when the server is stopped.
    mutating func run() {
        while true {
            var descriptors = [
                pollfd(fd: server.mailbox.waker.fd, events: Int16(POLLIN), revents: 0),
                // A negative descriptor is skipped (poll(2)).
                pollfd(fd: acceptsFrom == nil ? server.listener.fd : -1, events: Int16(POLLIN), revents: 0),
            ]
            descriptors += connections.map { pollfd(fd: $0.socket.fd, events: $0.events, revents: 0) }
            let count = poll(&descriptors, nfds_t(descriptors.count), timeout())
            guard count >= 0 || errno == EINTR else { return }
            let now = ContinuousClock.now
            // Clients first: `connections` still matches `descriptors`.
            if count > 0 { transfer(descriptors[2...], now: now) }
            if count > 0, descriptors[0].revents != 0 {
                guard let items = server.mailbox.take() else { return }
                deliver(items)
            }
            for connection in connections { serve(connection) }
            connections.removeAll { !$0.settle(now: now) || ($0.deadline.map { $0 <= now } ?? false) }
            countSubscribers()
            if let pause = acceptsFrom, pause <= now { acceptsFrom = nil }
            if count > 0, descriptors[1].revents != 0 { accept(now: now) }
        }
    }

    /// Milliseconds until the next deadline, or −1 for none.
    private func timeout() -> Int32 {
        guard let next = (connections.compactMap(\.deadline) + [acceptsFrom].compactMap { $0 }).min() else { return -1 }
        let left = next - ContinuousClock.now
        let milliseconds = left.components.seconds * 1000 + left.components.attoseconds / 1_000_000_000_000_000
        return Int32(clamping: max(0, milliseconds + 1))
    }

    private mutating func transfer(_ descriptors: ArraySlice<pollfd>, now: ContinuousClock.Instant) {
        var finished: Set<UInt64> = []
        for (connection, descriptor) in zip(connections, descriptors) where descriptor.revents != 0 {
            let others = connections.reduce(-connection.heldBytes) { $0 + $1.heldBytes }
            let allowance = ControlServer.maximumHeldBytes - others
            if !connection.transfer(descriptor.revents, allowance: allowance, now: now) {
                finished.insert(connection.number)
            }
        }
        connections.removeAll { finished.contains($0.number) }
    }

    private mutating func deliver(_ items: [ControlMailbox.Item]) {
        for item in items {
            switch item {
            case .reply(let number, let line, let isRefusal):
                connections.first { $0.number == number }?.deliver(reply: line, isRefusal: isRefusal)
            case .event(let line):
                connections.removeAll { !$0.deliver(event: line) }
            }
        }
    }

    private func serve(_ connection: ControlConnection) {
        while let request = connection.takeRequest() {
            if case .events = request {
                guard connections.count(where: \.isSubscriber) < ControlServer.maximumSubscribers else {
                    connection.answer(.error(ControlFailure(.busy, "too many clients listen to events")))
                    continue
                }
            }
            connection.await(request)
            // The request may contain a secret, and a lock may follow as soon as the handler has it.
            linux_scrub_thread()
            // Before the handler reads the state, so that no later event is missed.
            countSubscribers()
            let reply = ControlReply(mailbox: server.mailbox, connection: connection.number)
            server.handler(request) { reply.send($0) }
        }
    }

    private func countSubscribers() {
        server.mailbox.subscribers.store(connections.count(where: \.isSubscriber), ordering: .sequentiallyConsistent)
    }

    private mutating func accept(now: ContinuousClock.Instant) {
        let fd = Glibc.accept(server.listener.fd, nil, nil)
        guard fd >= 0 else {
            if errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS {
                acceptsFrom = now + .seconds(1)
            }
            return
        }
        let socket = Socket(owning: fd)
        // Swift's Glibc lacks accept4(2).
        guard fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, fcntl(fd, F_SETFL, O_NONBLOCK) == 0 else { return }
        guard let peer = try? socket.peer(), peer.userID == geteuid() || peer.userID == 0 else { return }
        makeRoom()
        lastNumber += 1
        connections.append(ControlConnection(number: lastNumber, socket: socket, timeout: server.timeout, now: now))
    }

    /// Hangs up on the client that has been silent longest. One that waits for a reply is chosen only if all do.
    private mutating func makeRoom() {
        let others = connections.filter { !$0.isSubscriber }
        guard others.count >= ControlServer.maximumConnections else { return }
        let silent = others.min { one, two in
            one.isAwaitingReply == two.isAwaitingReply
                ? one.lastActivity < two.lastActivity : two.isAwaitingReply
        }
        connections.removeAll { $0.number == silent?.number }
    }
}
