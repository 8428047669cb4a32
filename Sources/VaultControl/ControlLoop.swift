internal import Glibc
internal import SystemPackage

/// The loop of a `ControlServer`'s thread: poll(2), without a time-out while no client owes anything.
struct ControlLoop {
    private let server: ControlServer
    private var connections: [ControlConnection] = []
    /// Set while the process is out of descriptors, so that the listener, ready all the time, does not spin us.
    private var acceptsFrom: ContinuousClock.Instant?

    init(server: ControlServer) {
        self.server = server
    }

    /// Returns when the server is stopped.
    mutating func run() {
        while true {
            var descriptors = [
                pollfd(fd: server.stopSignal.fd, events: Int16(POLLIN), revents: 0),
                // A negative descriptor is skipped (poll(2)).
                pollfd(fd: acceptsFrom == nil ? server.listener.fd : -1, events: Int16(POLLIN), revents: 0),
            ]
            descriptors += connections.map { pollfd(fd: $0.socket.fd, events: $0.events, revents: 0) }
            let count = poll(&descriptors, nfds_t(descriptors.count), timeout())
            guard count >= 0 || errno == EINTR else { return }
            if descriptors[0].revents != 0 { return }
            let now = ContinuousClock.now
            if count > 0 { serve(descriptors[2...], now: now) }
            connections.removeAll { $0.deadline.map { $0 <= now } ?? false }
            if let pause = acceptsFrom, pause <= now { acceptsFrom = nil }
            if descriptors[1].revents != 0 { accept(now: now) }
        }
    }

    /// Milliseconds until the next deadline, −1 (for ever) where there is none.
    private func timeout() -> Int32 {
        guard let next = (connections.compactMap(\.deadline) + [acceptsFrom].compactMap { $0 }).min() else { return -1 }
        let left = next - ContinuousClock.now
        let milliseconds = left.components.seconds * 1000 + left.components.attoseconds / 1_000_000_000_000_000
        return Int32(clamping: max(0, milliseconds + 1))
    }

    private mutating func serve(_ descriptors: ArraySlice<pollfd>, now: ContinuousClock.Instant) {
        var finished: Set<Int32> = []
        for (index, descriptor) in descriptors.enumerated() where descriptor.revents != 0 {
            if !connections[index].serve(now: now, handler: server.handler) { finished.insert(descriptor.fd) }
        }
        connections.removeAll { finished.contains($0.socket.fd) }
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
        // accept4(2), which would do this at once, is not in Swift's Glibc.
        guard fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, fcntl(fd, F_SETFL, O_NONBLOCK) == 0 else { return }
        guard let peer = try? socket.peer(), peer.userID == geteuid() || peer.userID == 0 else { return }
        if connections.count >= ControlServer.maximumConnections,
            let silent = connections.indices.min(by: {
                connections[$0].lastActivity < connections[$1].lastActivity
            })
        {
            connections.remove(at: silent)
        }
        connections.append(ControlConnection(socket: socket, now: now))
    }
}
