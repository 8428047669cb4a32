internal import CFuse
internal import CLinux
package import FileSystem
internal import Glibc
internal import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage

/// One FUSE mount: made, served by our own worker threads until it is unmounted, then taken down. `run` and
/// `requestUnmount` may be called from any thread.
package final class FuseSession: @unchecked Sendable {
    // @unchecked: `session` is set once in `init`; libfuse's session is made for many threads.
    private let session: OpaquePointer
    private let server: FuseServer
    private let mountpoint: FilePath
    /// Moved on for each round of wiping.
    private let wipes = Atomic<Int>(0)
    private let workers = Monitor(Workers())
    private let caches: FuseKernelCaches
    /// Taken by who uses the session from outside of `run`, which may just be ending.
    private let hasEnded = Mutex(false)
    /// True once a request was answered through the mount. False if the session ended before that. Nil until either
    /// happens.
    private let firstAnswer = Monitor<Bool?>(nil)
    private let messages = LibraryMessages()

    private struct Workers {
        /// The round of wiping that each has taken part in last.
        var running: [(thread: pthread_t, worker: Worker, wiped: Int)] = []
    }

    /// Two a core keep the cores busy while some wait for the disk.
    private static var workerCount: Int { max(4, min(16, sysconf(Int32(_SC_NPROCESSORS_ONLN)) * 2)) }
    /// Interrupts a worker's read of /dev/fuse; its handler does nothing.
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
        Self.takeOverMessages(of: session)
        caches = FuseKernelCaches(session: session, newest: options.dropsNames)
        fileSystem.setAttributeObserver { [caches] inode in caches.dropAttributes(inode) }
        // Names that are not there are in no list of ours: the kernel may keep them only if one word drops them.
        server.keepsMissingNames.store(caches.knowsEpochs, ordering: .relaxed)
    }

    private static func mount(
        _ server: FuseServer, _ options: MountOptions, _ messages: LibraryMessages
    ) throws(MountError) -> OpaquePointer {
        let session = try makeSession(server, options, messages)
        let status = options.mountpoint.withPlatformString { path in
            messages.capturingHelper { fuse_session_mount(session, path) }
        }
        if status == 0 { return session }
        fuse_session_destroy(session)
        throw MountError(reason: "cannot mount at \(options.mountpoint): \(messages.summary)")
    }

    private static func makeSession(
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
        return session
    }

    /// Tells `body` what did not verify, without names. Any thread calls it.
    package func onDamage(_ body: @escaping @Sendable (String) -> Void) {
        server.onDamage.withLock { $0 = body }
    }

    /// Takes the mount away again, instead of `run`.
    /// - Parameter isInPlace: as for `run`.
    package func cancel(isInPlace: () -> Bool) {
        messages.restore()
        // That goes by the path, where another file system may be mounted by now.
        if isInPlace() { fuse_session_unmount(session) }
        // Closes the device in any case, and with it goes the connection.
        fuse_session_destroy(session)
    }

    /// Serves requests until the file system is unmounted; then seals what was written. Blocks.
    /// - Parameters:
    ///   - whenAnswering: called when the first request has been answered through the mount.
    ///   - whenUnmounted: called when no more requests come; afterwards nobody may use this session.
    ///   - isInPlace: whether what is mounted at the mountpoint may be this session's mount still, to be unmounted there.
    ///   - whenClosed: called when the connection has ended, before the sealing.
    /// - Throws: if the session ended before it answered a request. The mount is gone then.
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
        // Without a watch none may rest.
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
            // Before the sealing, which may take a while: who still asks is to be told that the mount has gone.
            cancel(isInPlace: isInPlace)
        }
        // The thread waits for its answer no longer than until the connection has ended.
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

    /// One worker: takes requests from the kernel and serves them, one at a time.
    private func work() {
        // A umask of its own: that of whoever asks (umask(2) is per process, but for CLONE_FS).
        guard linux_unshare_fs() == 0 else {
            // Callers' umasks would mix: better no mount.
            server.logger.critical("unshare: \(currentErrno())")
            return endEarly()
        }
        // Whoever made this thread may have blocked it.
        var wake = sigset_t()
        sigemptyset(&wake)
        sigaddset(&wake, Self.wakeSignal)
        pthread_sigmask(SIG_UNBLOCK, &wake, nil)
        let inFlight = server.gate.register()
        defer { server.gate.unregister(inFlight) }
        do {
            try server.withWorker(inFlight) { worker in
                workers.update { $0.running.append((pthread_self(), worker, 0)) }
                defer { workers.update { $0.running.removeAll { pthread_equal($0.thread, pthread_self()) != 0 } } }
                serveRequests(worker)
            }
        } catch {
            server.logger.critical("cannot make a worker's buffers: \(error)")
        }
        endEarly()
    }

    private func serveRequests(_ worker: Worker) {
        let gate = server.gate
        let scheduler = server.scheduler
        var wiped = 0
        var finished = 0
        while fuse_session_exited(session) == 0 {
            let wipe = wipes.load(ordering: .acquiring)
            if wipe != wiped {
                wiped = wipe
                self.wipe(worker)
            }
            if scheduler.restIfNotNeeded(worker.wake) { continue }
            let received = fuse_session_receive_buf(session, &worker.message)
            if received == -EINTR { continue }
            guard received > 0 else {
                if received < 0 { server.logger.critical("/dev/fuse: \(Errno(rawValue: -Int32(received)))") }
                break
            }
            worker.setxattrFlags =
                server.extendsSetxattr.load(ordering: .relaxed)
                ? linux_fuse_shorten_setxattr(worker.message.mem, &worker.message.size) : 0
            let thread = linux_fuse_thread(worker.message.mem, worker.message.size)
            let isSole = scheduler.isSole(worker.wake)
            let started = monotonicNanoseconds()
            if isSole {
                scheduler.soleTook()
                worker.affinity.took(thread, waited: started - finished)
            } else {
                worker.affinity.leave()
            }
            gate.enter(worker.inFlight)
            fuse_session_process_buf(session, &worker.message)
            gate.leave(worker.inFlight)
            if isSole { scheduler.soleAnswered() }
            worker.isPassingBy.store(false, ordering: .releasing)
            finished = monotonicNanoseconds()
            divideWork(worker, isSole, worker.affinity.served(thread, taken: finished - started, isAlone: isSole))
        }
    }

    private func divideWork(_ worker: Worker, _ isSole: Bool, _ finding: ClientAffinity.Finding) {
        switch finding {
        case .nothing: break
        case .soleClient where !isSole: server.scheduler.beginSole(worker.wake)
        case .soleClient: break
        case .severalClients: server.scheduler.endSole()
        }
    }

    /// Lets the other workers go too: unmounted, each finds that out for itself; after a failure they are woken.
    private func endEarly() {
        let isFirst = fuse_session_exited(session) == 0
        fuse_session_exit(session)
        firstAnswer.update { if $0 == nil { $0 = false } }
        server.scheduler.dismiss()
        if isFirst { (try? BackgroundThread { [self] in wakeWorkers() })?.detach() }
    }

    /// Unmounts as SIGTERM asks: dirty mapped pages are written back first; programs that still have files open get
    /// ENOTCONN from then on. No lock may be at work, nor begin.
    package func requestUnmount() {
        hasEnded.withLock { hasEnded in
            if hasEnded { return }
            // Not by syncfs(2), which (seen on kernel 6.18) begins to write back and does not wait for it.
            _ = dropInodes(server.fileSystem.openInodes())
            fuse_session_exit(session)
        }
        wakeWorkers()
    }

    private func wakeWorkers() {
        // A signal that comes just before the read is lost: again until all have gone.
        while true {
            let left = workers.update { workers in
                for worker in workers.running { pthread_kill(worker.thread, Self.wakeSignal) }
                return workers.running.count
            }
            if left == 0 { return }
            var pause = timespec(tv_sec: 0, tv_nsec: 10_000_000)
            nanosleep(&pause, nil)
        }
    }

    package var statistics: RequestStatistics {
        let scheduler = server.scheduler
        return RequestStatistics(served: server.requests.total, clientsFollowed: scheduler.followed.total)
    }
}

extension FuseSession: KernelCaches {
    package func dropInodes(_ inodes: [UInt64]) -> [String] { caches.dropInodes(inodes) }

    package func freeInodes(_ inodes: [UInt64]) { caches.freeInodes(inodes) }

    package func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) {
        caches.dropNames(names)
    }

    package func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool {
        if paths.isEmpty { return true }
        let isDone = Monitor(false)
        let isGivenUp = Atomic<Bool>(false)
        defer { isGivenUp.store(true, ordering: .sequentiallyConsistent) }
        let mountpoint = self.mountpoint.withPlatformString { bytes($0) }
        // On a thread of its own: what lies above the mountpoint may not answer.
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

    /// How long a worker may be busy, with an fsync(2) say, before it is given up; it wipes when it is done.
    private static let wipeTimeoutSeconds = 10

    package func wipeWorkers(waitingForAll: Bool) -> [String] {
        let round = wipes.add(1, ordering: .acquiringAndReleasing).newValue
        let end = monotonicMilliseconds() + Self.wipeTimeoutSeconds * 1000
        while monotonicMilliseconds() < end {
            workers.update { workers in
                for worker in workers.running where worker.wiped < round {
                    pthread_kill(worker.thread, Self.wakeSignal)
                }
            }
            // A signal that comes just before the read is lost: again until all have.
            let time = monotonicMilliseconds() + 2
            let deadline = timespec(tv_sec: time / 1000, tv_nsec: time % 1000 * 1_000_000)
            let isDone = workers.wait(until: deadline) { workers -> Bool? in
                workers.running.allSatisfy { running in
                    running.wiped >= round
                        || !waitingForAll && running.worker.isPassingBy.load(ordering: .acquiring)
                } ? true : nil
            }
            if isDone != nil { return [] }
        }
        return ["the buffers of a thread that is busy"]
    }

    private func wipe(_ worker: Worker) {
        // What a program wrote; freed memory is overwritten.
        free(worker.message.mem)
        worker.message = fuse_buf()
        worker.workspace.wipe()
        let round = wipes.load(ordering: .acquiring)
        workers.update { workers in
            let own = workers.running.indices.filter { pthread_equal(workers.running[$0].thread, pthread_self()) != 0 }
            for index in own { workers.running[index].wiped = round }
        }
    }
}
