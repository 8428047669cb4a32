internal import CFuse
internal import CLinux
package import FileSystem
internal import Glibc
internal import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage

/// One FUSE mount: mounts, serves requests with worker threads until the unmount, then releases everything. Any thread
/// may call `run` and `requestUnmount`.
package final class FuseSession: @unchecked Sendable {
    // @unchecked: `init` sets `session` once, and libfuse's session may be used by many threads.
    private let session: OpaquePointer
    private let server: FuseServer
    private let mountpoint: FilePath
    /// Number of wiping rounds so far.
    private let wipes = Atomic<Int>(0)
    private let workers = Monitor<[RunningWorker]>([])
    private let caches: FuseKernelCaches
    /// Locked by callers outside `run` that use the session, because `run` may just be ending.
    private let hasEnded = Mutex(false)
    /// True once a request was answered through the mount. False if the session ended before that. Nil until either
    /// happens.
    private let firstAnswer = Monitor<Bool?>(nil)
    private let messages = LibraryMessages()

    private struct RunningWorker {
        let thread: pthread_t
        let worker: Worker
        /// The last wiping round that it has taken part in.
        var wiped = 0
    }

    /// Two workers per core keep the cores busy while some wait for the disk.
    private static var workerCount: Int { max(4, min(16, sysconf(Int32(_SC_NPROCESSORS_ONLN)) * 2)) }
    /// Interrupts a worker's read of /dev/fuse. Its handler does nothing.
    private static let wakeSignal = SIGURG

    /// Mounts. When this returns, programs see the mount and their requests wait for `run`. Until the first answer,
    /// libfuse's messages are kept for the error instead of going to stderr.
    package init(fileSystem: any LockableFileSystem, options: MountOptions, logger: Logger) throws(MountError) {
        let server = FuseServer(fileSystem: fileSystem, options: options, logger: logger)
        self.server = server
        mountpoint = options.mountpoint
        messages.capture()
        do throws(MountError) {
            session = try Self.mount(server, options, messages)
        } catch {
            messages.restore()
            throw error
        }
        Self.interceptMessages(of: session)
        caches = FuseKernelCaches(session: session, newest: options.dropsNames)
        fileSystem.setAttributeObserver { [caches] inode in caches.dropAttributes(inode) }
        // We keep no list of missing names, so the kernel may cache them only if one notification drops all names.
        server.keepsMissingNames.store(caches.knowsEpochs, ordering: .relaxed)
    }

    private static func mount(
        _ server: FuseServer, _ options: MountOptions, _ messages: LibraryMessages
    ) throws(MountError) -> OpaquePointer {
        var arguments = fuse_args()
        defer { fuse_opt_free_args(&arguments) }
        for argument in ["vaultfs", "-o", options.argument] { fuse_opt_add_arg(&arguments, argument) }
        var operations = makeOperations()
        let userdata = Unmanaged.passUnretained(server).toOpaque()
        guard
            let session = fuse_session_new(&arguments, &operations, MemoryLayout<fuse_lowlevel_ops>.size, userdata)
        else { throw MountError(reason: "cannot mount: \(messages.summary)") }
        let status = options.mountpoint.withPlatformString { path in
            messages.capturingHelper { fuse_session_mount(session, path) }
        }
        if status == 0 { return session }
        fuse_session_destroy(session)
        throw MountError(reason: "cannot mount at \(options.mountpoint): \(messages.summary)")
    }

    /// Adds flags that libfuse 3.14 does not know to the reply to INIT (fuse_session_custom_io, fuse_lowlevel.h).
    private static func interceptMessages(of session: OpaquePointer) {
        var functions = fuse_custom_io()
        functions.read = { device, buffer, size, _ in read(device, buffer, size) }
        functions.writev = { device, parts, count, userdata in
            if let userdata, let parts {
                let server = Unmanaged<FuseServer>.fromOpaque(userdata).takeUnretainedValue()
                let flags = server.offeredFlags.load(ordering: .relaxed)
                if flags != 0, linux_fuse_take_flags(parts, count, flags) != 0 {
                    // Set this before the kernel has the reply, because it sends longer requests from then on.
                    server.extendsSetxattr.store(linux_fuse_extends_setxattr(flags) != 0, ordering: .relaxed)
                    server.offeredFlags.store(0, ordering: .relaxed)
                }
            }
            return writev(device, parts, count)
        }
        fuse_session_custom_io(session, &functions, fuse_session_fd(session))
    }

    /// Sets the function that is called, from any thread, with each damage that is found, without names.
    package func onDamage(_ body: @escaping @Sendable (String) -> Void) {
        server.onDamage.withLock { $0 = body }
    }

    /// Unmounts, instead of `run`.
    /// - Parameter isInPlace: as for `run`.
    package func cancel(isInPlace: () -> Bool) {
        messages.restore()
        // This unmounts by path, and another file system may be mounted there by now.
        if isInPlace() { fuse_session_unmount(session) }
        // Always closes the device, which ends the connection.
        fuse_session_destroy(session)
    }

    /// Serves requests until the file system is unmounted, then seals the written files. Blocks.
    /// - Parameters:
    ///   - whenAnswering: called when the first request has been answered through the mount.
    ///   - whenUnmounted: called when no more requests come. Afterwards nobody may use this session.
    ///   - isInPlace: returns true if the file system at the mountpoint may still be this session's. Only then is it
    ///     unmounted there.
    ///   - whenClosed: called when the connection has ended, before the sealing.
    /// - Throws: if the session ended before it answered a request. The mount no longer exists then.
    package func run(
        whenAnswering: () -> Void = {}, whenUnmounted: () -> Void, isInPlace: () -> Bool = { true },
        whenClosed: () -> Void = {}
    ) throws(MountError) {
        var ignore = sigaction()
        ignore.__sigaction_handler.sa_handler = { _ in }
        sigaction(Self.wakeSignal, &ignore, nil)
        let sealer = try? BackgroundThread { [server] in server.fileSystem.runInBackground() }
        let threads = (0..<Self.workerCount).compactMap { _ in
            try? BackgroundThread { [self] in work() }
        }
        if threads.isEmpty {
            server.logger.critical("cannot start a thread")
            endEarly()
        }
        let watch = try? BackgroundThread { [self] in
            server.scheduler.watch {
                var device = pollfd(fd: fuse_session_fd(session), events: Int16(POLLIN), revents: 0)
                return poll(&device, 1, 0) > 0
            }
        }
        let refuser = try? BackgroundThread { [server] in server.refusals.run() }
        if refuser == nil { server.refusals.stop() }
        // No worker may rest without the watch.
        if watch == nil { server.scheduler.dismiss() }
        let request = try? BackgroundThread { [self] in requestFirstAnswer() }
        if request == nil { endEarly() }
        let isAnswering = firstAnswer.wait { $0 }
        let reason = messages.last ?? "the mount ended before its first answer, see the log"
        messages.restore()
        if isAnswering { whenAnswering() }
        for thread in threads { thread.join() }
        server.scheduler.dismiss()
        watch?.join()
        server.fileSystem.endDeferred()
        server.refusals.stop()
        refuser?.join()
        whenUnmounted()
        hasEnded.withLock { hasEnded in
            hasEnded = true
            // Before the sealing, which may take a while: programs get ENOTCONN instead of waiting for it.
            cancel(isInPlace: isInPlace)
        }
        // The end of the connection has ended this thread's request.
        request?.join()
        whenClosed()
        server.fileSystem.shutDown()
        sealer?.join()
        if !isAnswering { throw MountError(reason: "cannot mount at \(mountpoint): \(reason)") }
    }

    /// Asks for the root's attributes, as a program does. The kernel does not have them yet, so it sends a request.
    /// The file system returns them in every state.
    private func requestFirstAnswer() {
        var status = stat()
        let isAnswered = mountpoint.withPlatformString { stat($0, &status) } == 0
        // After an unmount the path leads to the bare directory.
        let isOurs = isAnswered && server.requests.total > 0
        firstAnswer.update { if $0 == nil { $0 = isOurs } }
        if !isOurs { endEarly() }
    }

    // MARK: Workers

    /// The body of a worker thread.
    private func work() {
        // Creating files needs the caller's umask. Without CLONE_FS this thread has a umask of its own (umask(2)).
        guard linux_unshare_fs() == 0 else {
            // Callers' umasks would mix, so end the mount.
            server.logger.critical("unshare: \(currentErrno())")
            return endEarly()
        }
        // The thread that created this one may have blocked the signal.
        var wake = sigset_t()
        sigemptyset(&wake)
        sigaddset(&wake, Self.wakeSignal)
        pthread_sigmask(SIG_UNBLOCK, &wake, nil)
        let inFlight = server.gate.register()
        defer { server.gate.unregister(inFlight) }
        do {
            try server.withWorker(inFlight) { worker in
                workers.update { $0.append(RunningWorker(thread: pthread_self(), worker: worker)) }
                defer { workers.update { $0.removeAll { $0.worker === worker } } }
                serveRequests(worker)
            }
        } catch {
            server.logger.critical("cannot make a worker's buffers: \(error)")
        }
        endEarly()
    }

    /// Receives requests, admits, serves and answers them, one at a time.
    private func serveRequests(_ worker: Worker) {
        let gate = server.gate
        // A local variable and not a property of the worker, because each access to a property of a class is checked for
        // exclusivity at run time (seen with callgrind).
        var schedule = WorkerSchedule(server.scheduler)
        var wiped = 0
        while fuse_session_exited(session) == 0 {
            let wipe = wipes.load(ordering: .acquiring)
            if wipe != wiped {
                wiped = wipe
                self.wipe(worker)
            }
            if schedule.restIfNotNeeded() { continue }
            let received = fuse_session_receive_buf(session, &worker.message)
            if received == -EINTR { continue }
            guard received > 0 else {
                if received < 0 { server.logger.critical("/dev/fuse: \(Errno(rawValue: -Int32(received)))") }
                break
            }
            worker.setxattrFlags =
                server.extendsSetxattr.load(ordering: .relaxed)
                ? linux_fuse_shorten_setxattr(worker.message.mem, &worker.message.size) : 0
            schedule.began(worker.message)
            gate.enter(worker.inFlight)
            fuse_session_process_buf(session, &worker.message)
            gate.leave(worker.inFlight)
            worker.hasLeftGate.store(false, ordering: .releasing)
            schedule.ended()
        }
    }

    /// Ends all workers. After an unmount each finds out for itself. After a failure they must be woken.
    private func endEarly() {
        let isFirst = fuse_session_exited(session) == 0
        fuse_session_exit(session)
        firstAnswer.update { if $0 == nil { $0 = false } }
        server.scheduler.dismiss()
        if isFirst { (try? BackgroundThread { [self] in wakeWorkers() })?.detach() }
    }

    /// Unmounts, for SIGTERM. First the kernel writes dirty mapped pages back. Programs with open files get ENOTCONN
    /// afterwards. No lock may be in progress, or begin.
    package func requestUnmount() {
        hasEnded.withLock { hasEnded in
            if hasEnded { return }
            // syncfs(2) would start the writing without waiting for it (seen on kernel 6.18).
            _ = dropInodes(server.fileSystem.openInodes())
            fuse_session_exit(session)
        }
        wakeWorkers()
    }

    private func wakeWorkers() {
        // A signal just before the read is lost, so repeat until all have ended.
        while true {
            let left = workers.update { workers in
                for worker in workers { pthread_kill(worker.thread, Self.wakeSignal) }
                return workers.count
            }
            if left == 0 { return }
            usleep(10_000)
        }
    }

    package var statistics: RequestStatistics {
        RequestStatistics(served: server.requests.total, clientsFollowed: server.scheduler.followed.total)
    }
}

/// The kernel's requests in `status`: totals since the mount.
package struct RequestStatistics: Codable, Sendable, Equatable {
    package let served: UInt64
    /// Number of times that a single worker began to serve a single program.
    package let clientsFollowed: UInt64
}

extension FuseSession: KernelCaches {
    package func dropInodes(_ inodes: [UInt64]) -> [String] { caches.dropInodes(inodes) }

    package func freeInodes(_ inodes: [UInt64]) -> [String] { caches.freeInodes(inodes) }

    package func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) {
        caches.dropNames(names)
    }

    package func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool {
        if paths.isEmpty { return true }
        let isDone = Monitor(false)
        let isGivenUp = Atomic<Bool>(false)
        defer { isGivenUp.store(true, ordering: .sequentiallyConsistent) }
        let mountpoint = self.mountpoint.withPlatformString { bytes($0) }
        // On a thread of its own, because the file system above the mountpoint may not answer.
        let look = try? BackgroundThread {
            for path in paths where goesOn() && !isGivenUp.load(ordering: .sequentiallyConsistent) {
                var status = stat()
                withCString(mountpoint + path) { _ = lstat($0, &status) }
            }
            isDone.update { $0 = true }
        }
        guard let look else { return false }
        look.detach()
        return isDone.wait(until: monotonicDeadline(in: 1)) { $0 ? goesOn() : nil } ?? false
    }

    /// Time, in milliseconds, to wait for a busy worker, for example in fsync(2). It wipes when its request is done.
    private static let wipeTimeoutMilliseconds = 10_000

    package func wipeWorkers(waitingForAll: Bool) -> [String] {
        let round = wipes.add(1, ordering: .acquiringAndReleasing).newValue
        let end = monotonicMilliseconds() + Self.wipeTimeoutMilliseconds
        while monotonicMilliseconds() < end {
            workers.update { workers in
                for worker in workers where worker.wiped < round { pthread_kill(worker.thread, Self.wakeSignal) }
            }
            // A signal just before the read is lost, so repeat until all have wiped.
            let isDone = workers.wait(until: monotonicDeadline(inMilliseconds: 2)) { workers -> Bool? in
                workers.allSatisfy { running in
                    running.wiped >= round
                        || !waitingForAll && running.worker.hasLeftGate.load(ordering: .acquiring)
                } ? true : nil
            }
            if isDone != nil { return [] }
        }
        return ["the buffers of a thread that is busy"]
    }

    private func wipe(_ worker: Worker) {
        // It may hold written plaintext. Freed memory is overwritten.
        free(worker.message.mem)
        worker.message = fuse_buf()
        worker.workspace.wipe()
        let round = wipes.load(ordering: .acquiring)
        workers.update { workers in
            for index in workers.indices where workers[index].worker === worker { workers[index].wiped = round }
        }
    }
}
