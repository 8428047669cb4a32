package import FoundationEssentials
internal import Glibc
internal import SystemPackage
internal import VaultCrypto

/// A connection to one daemon's control socket. One thread at a time.
package final class ControlClient {
    /// The daemon's process id.
    package let processID: Int32
    /// How long a daemon may take to accept and to answer, in seconds.
    private static let patience = 5

    private let socket: Socket
    private let received = LineBuffer(maximumLineSize: ControlMessage.maximumResponseSize)

    private init(socket: Socket) throws(Errno) {
        self.socket = socket
        processID = try socket.peer().processID
    }

    /// Connects to the socket `name` of `directory`. Nil where nobody listens; a dead daemon's socket is removed.
    package static func connect(name: String, directory: RuntimeDirectory) -> ControlClient? {
        let inode = directory.inode(of: name)
        do throws(Errno) {
            let socket = try Socket.make(isBlocking: true)
            try socket.setTimeout(seconds: patience)
            try checked(
                Socket.withAddress(of: name, in: directory.fd) { address, size in
                    Glibc.connect(socket.fd, address, size)
                })
            return try ControlClient(socket: socket)
        } catch {
            // A daemon's socket gets its name only when it listens: whoever refuses is dead.
            if error == .connectionRefused, let inode { directory.remove(name, inode: inode) }
            return nil
        }
    }

    /// Sends a request and waits for the response: up to 5 s, but as long as it takes for `lock` and `unlock`.
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
        case .status, .stats, .events: try setTimeout(seconds: Self.patience)
        }
        guard let answer = try nextLine() else { throw .noAnswer("it hung up") }
        return try ControlMessage.response(line: answer, to: request)
    }

    /// After `events` was answered: waits for the next event. Nil when the daemon has gone.
    /// - Parameter output: a descriptor; when nobody reads what is written there any more, the wait ends, too, with nil.
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

    /// False when nobody reads `output` any more: poll(2) then says POLLERR for a pipe.
    private func waitUntilReadable(whileReading output: Int32) -> Bool {
        var descriptors = [
            pollfd(fd: socket.fd, events: Int16(POLLIN), revents: 0), pollfd(fd: output, events: 0, revents: 0),
        ]
        while poll(&descriptors, 2, -1) < 0, errno == EINTR {}
        return descriptors[0].revents != 0 || descriptors[1].revents & Int16(POLLERR | POLLHUP) == 0
    }

    /// Reads one piece. False at the end of the stream.
    private func receive() throws(ControlError) -> Bool {
        let count = received.fill { recv(socket.fd, $0.baseAddress, $0.count, 0) }
        if count < 0, errno != EINTR {
            // A daemon that was killed with our request unread.
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

    /// 0: for ever.
    private func setTimeout(seconds: Int) throws(ControlError) {
        do throws(Errno) {
            try socket.setTimeout(seconds: seconds)
        } catch {
            throw .noAnswer("\(error)")
        }
    }

    /// Waits until the daemon has closed the connection: when it has flushed everything and wiped its keys, or died.
    /// False when `timeout` went by first. Not after a request whose response was not read.
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
