internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The control socket of one mount, served by one thread.
///
/// It answers only the daemon's own user and root. A client that is slow, silent or sends invalid lines delays no other.
package final class ControlServer: Sendable {
    /// Handles a request on the server's thread, and must not block. `reply` may be called on any thread at any later time.
    /// Only its first call counts.
    package typealias Handler =
        @Sendable (ControlRequest, _ reply: @escaping @Sendable (ControlResponse) -> Void) -> Void

    /// The longest time that a line may stay incomplete, or an answer unread.
    package static let clientTimeout: Duration = .seconds(5)
    /// The most clients without subscribers. One more, and the server hangs up on the one that has been silent longest.
    static let maximumConnections = 64
    /// The most clients that get events. One more is refused.
    static let maximumSubscribers = 32
    /// The most bytes of incomplete requests of all clients.
    static let maximumHeldBytes = 16 << 20

    let directory: RuntimeDirectory
    let name: String
    let listener: Socket
    let handler: Handler
    let timeout: Duration
    let mailbox: ControlMailbox
    private let thread = Mutex<BackgroundThread?>(nil)
    private let inode: ino_t

    /// Binds and listens. Clients wait until `start`.
    /// - Parameter mountpoint: an absolute path without links, as bytes.
    /// - Throws: `system`.
    package init(
        directory: RuntimeDirectory, mountpoint: [UInt8], timeout: Duration = clientTimeout, handler: @escaping Handler
    ) throws(ControlError) {
        self.timeout = timeout
        self.directory = directory
        self.handler = handler
        name = RuntimeDirectory.socketName(mountpoint: mountpoint)
        do throws(Errno) {
            listener = try Socket.make(isBlocking: false)
            mailbox = try ControlMailbox()
            inode = try Self.listen(listener, name: name, directory: directory)
        } catch {
            throw .system(error, "cannot make the control socket in", directory.path)
        }
    }

    deinit {
        removeSocket()
    }

    /// Makes the socket under a temporary name and renames it once it listens, over a dead daemon's socket. So a socket that
    /// refuses connections never has a living owner.
    private static func listen(_ listener: Socket, name: String, directory: RuntimeDirectory) throws(Errno) -> ino_t {
        let temporary = "\(name).\(getpid())"
        unlinkat(directory.fd, temporary, 0)
        try checked(
            Socket.withAddress(of: temporary, in: directory.fd) { address, size in
                bind(listener.fd, address, size)
            })
        do throws(Errno) {
            try checked(Glibc.listen(listener.fd, 16))
            var status = stat()
            try checked(fstatat(directory.fd, temporary, &status, AT_SYMLINK_NOFOLLOW))
            try checked(renameat(directory.fd, temporary, directory.fd, name))
            return status.st_ino
        } catch {
            unlinkat(directory.fd, temporary, 0)
            throw error
        }
    }

    /// Starts the thread that answers.
    /// - Throws: `system`.
    package func start() throws(ControlError) {
        do throws(StoreError) {
            let started = try BackgroundThread(blocksSignals: true) { [self] in
                var loop = ControlLoop(server: self)
                loop.run()
            }
            thread.withLock { $0 = started }
        } catch {
            throw .system(error.errno, "cannot start a thread for", directory.path)
        }
    }

    /// Sends an event to every subscriber. Any thread. Never blocks.
    package func broadcast(_ event: ControlEvent) {
        guard mailbox.subscribers.load(ordering: .sequentiallyConsistent) > 0 else { return }
        mailbox.post(.event(ControlMessage.line(of: event)))
    }

    /// Hangs up on every client, waits for the thread to end, and removes the socket.
    package func stop() {
        mailbox.close()
        thread.withLock { $0.take() }?.join()
        removeSocket()
    }

    /// Removes the socket's name. Clients stay connected.
    package func removeSocket() {
        directory.remove(name, inode: inode)
    }
}
