package import FoundationEssentials
internal import Glibc
internal import SystemPackage
internal import VaultCrypto

/// A connection to a daemon's control socket. One thread at a time.
package final class ControlClient: @unchecked Sendable {
    // @unchecked: a thread that connects hands it over and keeps no reference.

    /// The daemon's process id. 0 if this process-id namespace does not show it (unix(7), SO_PEERCRED).
    package let processID: Int32
    /// The longest time that a daemon may take to accept and to answer, in seconds.
    private static let timeout = 5

    private let socket: Socket
    private let received = LineBuffer(maximumLineSize: ControlMessage.maximumResponseSize)

    private init(socket: Socket) throws(Errno) {
        self.socket = socket
        processID = try socket.peer().processID
    }

    /// Connects to the socket `name` of `directory`. Returns nil if nobody listens. Removes a dead daemon's socket.
    package static func connect(name: String, directory: RuntimeDirectory) -> ControlClient? {
        let inode = directory.inode(of: name)
        do throws(Errno) {
            let socket = try Socket.make(isBlocking: true)
            try socket.setTimeout(seconds: timeout)
            try checked(
                Socket.withAddress(of: name, in: directory.fd) { address, size in
                    Glibc.connect(socket.fd, address, size)
                })
            return try ControlClient(socket: socket)
        } catch {
            // A socket gets its name only when it listens. One that refuses is a dead daemon's.
            if error == .connectionRefused, let inode { directory.remove(name, inode: inode) }
            return nil
        }
    }

    /// Sends a request and waits for the response. For `lock` and `unlock` there is no timeout, for others 5 s.
    /// - Throws: `noAnswer`, `notUnderstood`.
    package func send(_ request: ControlRequest) throws(ControlError) -> ControlResponse {
        let line: SecretBytes
        do throws(CryptoError) {
            line = try ControlMessage.line(of: request)
        } catch {
            throw .noAnswer("\(error)")
        }
        try send(line: line)
        switch request {
        case .lock, .unlock: try setTimeout(seconds: 0)
        case .status, .stats, .events: try setTimeout(seconds: Self.timeout)
        }
        guard let answer = try nextLine() else { throw .noAnswer("it hung up") }
        return try ControlMessage.response(line: answer, to: request)
    }

    /// Waits for the next event, after `events` was answered. Returns nil when the daemon has hung up.
    /// - Parameter output: a pipe. The wait also ends, with nil, when the pipe has no reader any more.
    /// - Throws: `notUnderstood`, `noAnswer`.
    package func nextEvent(
        whileReading output: Int32? = nil
    ) throws(ControlError) -> (event: ControlEvent, line: Data)? {
        try setTimeout(seconds: 0)
        guard let line = try nextLine(whileReading: output) else { return nil }
        return (try ControlMessage.event(line: line), line)
    }

    private func nextLine(whileReading output: Int32? = nil) throws(ControlError) -> Data? {
        while true {
            do throws(LineBuffer.Failure) {
                if let line = try received.takeLine({ Data($0) }) { return line }
            } catch {
                throw .notUnderstood("a line of over \(ControlMessage.maximumResponseSize) bytes")
            }
            if let output, !waitUntilReadable(whileReading: output) { return nil }
            guard try receive() else { return nil }
        }
    }

    /// Returns false if the pipe `output` has no reader any more: poll(2) then reports POLLERR.
    private func waitUntilReadable(whileReading output: Int32) -> Bool {
        var descriptors = [
            pollfd(fd: socket.fd, events: Int16(POLLIN), revents: 0), pollfd(fd: output, events: 0, revents: 0),
        ]
        while poll(&descriptors, 2, -1) < 0, errno == EINTR {}
        return descriptors[0].revents != 0 || descriptors[1].revents & Int16(POLLERR | POLLHUP) == 0
    }

    /// Reads one piece. Returns false at the end of the stream.
    private func receive() throws(ControlError) -> Bool {
        let count = received.fill { recv(socket.fd, $0.baseAddress, $0.count, 0) }
        if count < 0, errno != EINTR {
            // The daemon was killed before it read the request.
            if errno == ECONNRESET { return false }
            throw .noAnswer(errno == EAGAIN ? "timed out" : "\(Errno(rawValue: errno))")
        }
        return count != 0
    }

    private func send(line: SecretBytes) throws(ControlError) {
        try line.withUnsafeBytes { (bytes) throws(ControlError) in
            var rest = bytes[...]
            while !rest.isEmpty {
                let piece = UnsafeRawBufferPointer(rebasing: rest)
                let count = Glibc.send(socket.fd, piece.baseAddress, piece.count, Int32(MSG_NOSIGNAL))
                if count >= 0 {
                    rest = rest.dropFirst(count)
                } else if errno != EINTR {
                    throw .noAnswer("\(Errno(rawValue: errno))")
                }
            }
        }
    }

    /// - Parameter seconds: 0 for none.
    private func setTimeout(seconds: Int) throws(ControlError) {
        do throws(Errno) {
            try socket.setTimeout(seconds: seconds)
        } catch {
            throw .noAnswer("\(error)")
        }
    }

    /// Waits until the daemon closes the connection: it has then flushed everything and wiped its keys, or died. Returns
    /// false after `timeout`. Every response must have been read before.
    package func waitUntilClosed(timeout: Duration) -> Bool {
        let deadline = ContinuousClock.now + timeout
        while true {
            let left = deadline - ContinuousClock.now
            guard left > .zero else { return false }
            var descriptor = pollfd(fd: socket.fd, events: Int16(POLLIN), revents: 0)
            let milliseconds = left.components.seconds * 1000 + left.components.attoseconds / 1_000_000_000_000_000
            guard poll(&descriptor, 1, Int32(clamping: milliseconds + 1)) > 0 else { continue }
            var byte: UInt8 = 0
            let count = recv(socket.fd, &byte, 1, 0)
            if count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN) { return true }
        }
    }
}
