package import FoundationEssentials
internal import Glibc
package import LinuxSystem
internal import SystemPackage
internal import VaultCrypto

/// A connection to a daemon's control socket. One thread at a time.
package final class ControlClient: @unchecked Sendable {
    // @unchecked: the thread that connects passes the client on and keeps no reference to it.

    /// The daemon's process id. 0 if this process-id namespace does not show it (unix(7), SO_PEERCRED).
    package let processID: Int32
    /// The time in which a daemon must accept and answer, in seconds.
    private static let timeout = 5

    private let socket: Descriptor
    private let received = LineBuffer(maximumLineSize: ControlResponse.maximumSize)

    /// Connects to the socket `name` of `directory`. Removes a dead daemon's socket.
    /// - Throws: `noDaemon` if nothing listens there.
    package init(name: Component, directory: RuntimeDirectory) throws(ControlError) {
        let inode = directory.inode(of: name)
        do throws(StoreError) {
            socket = try .streamSocket(isBlocking: true)
            try socket.setTimeout(seconds: Self.timeout)
            try socket.call(connect, name, in: directory.descriptor)
            processID = try socket.peer().processID
        } catch {
            // A socket gets its name only once it listens, so one that refuses a connection is a dead daemon's.
            if error.errno == .connectionRefused, let inode { directory.remove(name, inode: inode) }
            throw .noDaemon
        }
    }

    /// Sends a request and waits for the response.
    /// - Parameter timeout: in seconds. Nil for 5 s, and for none with `sync`, `lock` and `unlock`.
    /// - Throws: `timedOut`, `noAnswer`, `notUnderstood`.
    package func send(_ request: ControlRequest, timeout: Int? = nil) throws(ControlError) -> ControlResponse {
        do {
            let line = try request.line()
            try line.withUnsafeBytes { (bytes) throws(StoreError) in
                var sent = 0
                while sent < bytes.count {
                    let rest = bytes.slice(sent...)
                    sent += try retrying { Glibc.send(socket.fd, rest.baseAddress, rest.count, Int32(MSG_NOSIGNAL)) }
                }
            }
        } catch {
            throw .noAnswer((error as? StoreError).map { "\($0.errno)" } ?? "\(error)")
        }
        let answer =
            switch request {
            case .sync, .lock, .unlock: try nextLine(timeout: timeout ?? 0)
            case .status, .events: try nextLine(timeout: timeout ?? Self.timeout)
            }
        guard let answer else { throw .noAnswer("it hung up") }
        return try .parse(answer, to: request)
    }

    /// Waits for the next event, after `events` was answered. Returns nil when the daemon has hung up.
    /// - Parameter output: a pipe. The wait also ends, with nil, when the pipe has lost its last reader.
    /// - Throws: `notUnderstood`, `noAnswer`.
    package func nextEvent(
        whileReading output: Int32? = nil
    ) throws(ControlError) -> (event: ControlEvent, line: Data)? {
        guard let line = try nextLine(timeout: 0, whileReading: output) else { return nil }
        guard let event = try? JSONDecoder().decode(ControlEvent.self, from: line) else {
            throw .notUnderstood("\(line.count) bytes that are no event")
        }
        return (event, line)
    }

    /// - Parameter timeout: in seconds, 0 for none.
    private func nextLine(timeout: Int, whileReading output: Int32? = nil) throws(ControlError) -> Data? {
        do {
            try socket.setTimeout(seconds: timeout)
            while true {
                if let line = try received.withNextLine({ Data($0) }) { return line }
                if let output, !waitUntilReadable(whileReading: output) { return nil }
                let count = try received.fill { (room) throws(StoreError) in
                    try retrying { recv(socket.fd, room.baseAddress, room.count, 0) }
                }
                if count == 0 { return nil }
            }
        } catch let error as StoreError {
            // The daemon was killed before it read the request.
            if error.errno == .connectionReset { return nil }
            throw error.errno == .wouldBlock ? .timedOut : .noAnswer("\(error.errno)")
        } catch {
            throw .notUnderstood("a line of over \(ControlResponse.maximumSize) bytes")
        }
    }

    /// Returns false if the pipe `output` has lost its last reader, which poll(2) reports as POLLERR.
    private func waitUntilReadable(whileReading output: Int32) -> Bool {
        var descriptors = [
            pollfd(fd: socket.fd, events: Int16(POLLIN), revents: 0), pollfd(fd: output, events: 0, revents: 0),
        ]
        while poll(&descriptors, 2, -1) < 0, errno == EINTR {}
        return descriptors[0].revents != 0 || descriptors[1].revents & Int16(POLLERR | POLLHUP) == 0
    }

    /// Waits until the daemon closes the connection, which means that it has flushed everything and wiped its keys, or
    /// died. Returns false after `timeout`.
    /// - Parameter body: called with each event, if `events` was requested.
    package func waitUntilClosed(timeout: Duration, onEvent body: (ControlEvent) -> Void = { _ in }) -> Bool {
        let deadline = ContinuousClock.now + timeout
        while ContinuousClock.now < deadline {
            var descriptor = pollfd(fd: socket.fd, events: Int16(POLLIN), revents: 0)
            guard poll(&descriptor, 1, (deadline - .now).pollTimeout) > 0 else { continue }
            do {
                let count = try received.fill { (room) throws(StoreError) in
                    try retrying { recv(socket.fd, room.baseAddress, room.count, 0) }
                }
                if count == 0 { return true }
                while let line = try received.withNextLine({ Data($0) }) {
                    if let event = try? JSONDecoder().decode(ControlEvent.self, from: line) { body(event) }
                }
            } catch {
                if (error as? StoreError)?.errno != .wouldBlock { return true }
            }
        }
        return false
    }
}
