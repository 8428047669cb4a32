internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// The control socket of one mount, in the run-time directory: one thread, which sleeps until someone calls.
///
/// Only the owner of the daemon and root are answered. A client that is slow, silent or sends nonsense delays nobody.
package final class ControlServer: Sendable {
    /// Takes a request, on the server's thread, which it must not hold up. `reply` may be called on any thread, at any
    /// time later, also when the client has gone; only its first call counts.
    package typealias Handler =
        @Sendable (ControlRequest, _ reply: @escaping @Sendable (ControlResponse) -> Void) -> Void

    /// How long a line may stay incomplete, and an answer unread.
    static let usualPatience: Duration = .seconds(5)
    /// Of clients that are no subscribers. Beyond it, whoever has been silent longest is cut off.
    static let maximumConnections = 64
    /// Of clients that listen to events. Beyond it they are refused.
    static let maximumSubscribers = 32
    /// Bytes of incomplete requests, of all clients together.
    static let maximumHeldBytes = 16 << 20

    let directory: RuntimeDirectory
    let name: String
    let listener: Socket
    let handler: Handler
    let patience: Duration
    let mailbox: ControlMailbox
    private let thread = Mutex<BackgroundThread?>(nil)
    private let inode: ino_t

    /// Binds and listens; clients wait until `start`.
    /// - Parameter mountpoint: an absolute path without links, as bytes.
    /// - Throws: `system`.
    package convenience init(
        directory: RuntimeDirectory, mountpoint: [UInt8], handler: @escaping Handler
    ) throws(ControlError) {
        try self.init(
            directory: directory, mountpoint: mountpoint, patience: Self.usualPatience, handler: handler)
    }

    init(
        directory: RuntimeDirectory, mountpoint: [UInt8], patience: Duration, handler: @escaping Handler
    ) throws(ControlError) {
        self.patience = patience
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

    /// Makes the socket under a name of its own and renames it when it listens, over whatever a dead daemon left: so
    /// nobody ever finds a socket here that refuses and has a living owner.
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

    /// Starts answering, on a thread that has every signal blocked.
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

    /// Sends an event to every client that has asked for events. Any thread; never blocks.
    package func broadcast(_ event: ControlEvent) {
        guard mailbox.subscribers.load(ordering: .sequentiallyConsistent) > 0 else { return }
        mailbox.post(.event(ControlMessage.line(of: event)))
    }

    /// Hangs up on every client, waits for the thread to end and removes the socket. Again: nothing.
    package func stop() {
        mailbox.close()
        thread.withLock { $0.take() }?.join()
        removeSocket()
    }

    /// Removes the socket's name: nobody finds it any more; who is connected stays so. Again: nothing.
    package func removeSocket() {
        directory.remove(name, inode: inode)
    }
}
