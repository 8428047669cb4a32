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
                while sent < bytes.count { sent += try socket.send(bytes.slice(sent...)) }
            }
        } catch {
            throw .noAnswer((error as? StoreError).map { "\($0.errno)" } ?? "\(error)")
        }
        let seconds =
            switch request {
            case .sync, .lock, .unlock: timeout
            case .status, .events: timeout ?? Self.timeout
            }
        let answer = try nextLine(until: seconds.map { .now + .seconds($0) })
        guard let answer else { throw .noAnswer("it hung up") }
        return try .parse(answer, to: request)
    }

    /// Waits for the next event, after `events` was answered. Returns nil when the daemon has hung up.
    /// - Parameter output: a pipe. The wait also ends, with nil, when the pipe has lost its last reader.
    /// - Throws: `notUnderstood`, `noAnswer`.
    package func nextEvent(
        whileReading output: Int32? = nil
    ) throws(ControlError) -> (event: ControlEvent, line: Data)? {
        guard let line = try nextLine(until: nil, whileReading: output) else { return nil }
        guard let event = try? JSONDecoder().decode(ControlEvent.self, from: line) else {
            throw .notUnderstood("\(line.count) bytes that are no event")
        }
        return (event, line)
    }

    /// Returns nil at the end of the stream, and if the pipe `output` has lost its last reader (POLLERR of poll(2)).
    /// - Throws: `timedOut`, `noAnswer`, `notUnderstood`.
    private func nextLine(
        until deadline: ContinuousClock.Instant?, whileReading output: Int32? = nil
    ) throws(ControlError) -> Data? {
        do {
            while true {
                if let line = try received.withNextLine({ Data($0) }) { return line }
                // A negative descriptor is skipped (poll(2)).
                let isReady = try socket.wait(for: POLLIN, besides: (output ?? -1, 0), until: deadline)
                if try !isReady || received.receive(from: socket) == 0 { return nil }
            }
        } catch let error as StoreError {
            // The daemon was killed before it read the request.
            if error.errno == .connectionReset { return nil }
            throw error.errno == .timedOut ? .timedOut : .noAnswer("\(error.errno)")
        } catch {
            throw .notUnderstood("a line of over \(ControlResponse.maximumSize) bytes")
        }
    }

    /// Waits until the daemon closes the connection, which means that it has flushed everything and wiped its keys, or
    /// died. Returns false after `timeout`.
    /// - Parameter body: called with each event, if `events` was requested.
    package func waitUntilClosed(timeout: Duration, onEvent body: (ControlEvent) -> Void = { _ in }) -> Bool {
        let deadline = ContinuousClock.now + timeout
        do throws(ControlError) {
            while let line = try nextLine(until: deadline) {
                if let event = try? JSONDecoder().decode(ControlEvent.self, from: line) { body(event) }
            }
            return true
        } catch {
            return error != .timedOut
        }
    }
}
