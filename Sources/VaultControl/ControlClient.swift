internal import Glibc
internal import SystemPackage

/// A connection to one daemon's control socket. One thread at a time.
package final class ControlClient {
    /// The daemon's process id.
    package let processID: Int32
    private let socket: Socket
    private var received = LineBuffer(maximumLineSize: ControlMessage.maximumResponseSize)

    private init(socket: Socket) throws(Errno) {
        self.socket = socket
        processID = try socket.peer().processID
    }

    /// Connects to the daemon that serves `mountpoint`, an absolute path without links.
    /// - Throws: `noDaemon`.
    package static func connect(
        mountpoint: [UInt8], directories: [RuntimeDirectory]
    ) throws(ControlError) -> ControlClient {
        let name = RuntimeDirectory.socketName(mountpoint: mountpoint)
        for directory in directories {
            if let client = connect(name: name, directory: directory) { return client }
        }
        throw .noDaemon
    }

    /// Connects to every daemon that has a socket in `directories`.
    package static func connectToAll(directories: [RuntimeDirectory]) -> [ControlClient] {
        directories.flatMap { directory in
            directory.socketNames().compactMap { connect(name: $0, directory: directory) }
        }
    }

    /// Nil where nobody listens; a dead daemon's socket is removed.
    private static func connect(name: String, directory: RuntimeDirectory) -> ControlClient? {
        do throws(Errno) {
            let socket = try Socket.make(isBlocking: true)
            try socket.setTimeout(seconds: 5)
            try checked(
                Socket.withAddress(of: name, in: directory.fd) { address, size in
                    Glibc.connect(socket.fd, address, size)
                })
            return try ControlClient(socket: socket)
        } catch {
            // A daemon's socket gets its name only when it listens: whoever refuses is dead.
            if error == .connectionRefused { unlinkat(directory.fd, name, 0) }
            return nil
        }
    }

    /// Sends a request and waits up to 5 s for the response.
    /// - Throws: `noAnswer`, `notUnderstood`.
    package func send(_ request: ControlRequest) throws(ControlError) -> ControlResponse {
        try send(bytes: ControlMessage.line(of: request))
        while true {
            do throws(LineBuffer.Failure) {
                if let line = try received.nextLine() { return try parse(line) }
            } catch {
                throw .notUnderstood("a line of over \(ControlMessage.maximumResponseSize) bytes")
            }
            try receive()
        }
    }

    private func parse(_ line: [UInt8]) throws(LineBuffer.Failure) -> ControlResponse {
        do throws(ControlError) {
            return try ControlMessage.response(line: line)
        } catch {
            return .error(error.description)
        }
    }

    private func receive() throws(ControlError) {
        var piece = [UInt8](repeating: 0, count: 16384)
        let count = recv(socket.fd, &piece, piece.count, 0)
        if count > 0 {
            received.append(piece[..<count])
        } else if count == 0 {
            throw .noAnswer("it hung up")
        } else if errno != EINTR {
            throw .noAnswer(errno == EAGAIN ? "timed out" : "\(Errno(rawValue: errno))")
        }
    }

    private func send(bytes: [UInt8]) throws(ControlError) {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { Glibc.send(socket.fd, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
            if count >= 0 {
                rest = rest.dropFirst(count)
            } else if errno != EINTR {
                throw .noAnswer("\(Errno(rawValue: errno))")
            }
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
