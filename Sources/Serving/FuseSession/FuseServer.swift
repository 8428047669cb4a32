internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import Synchronization
internal import SystemPackage

/// The workers of a session, and the state shared by libfuse's callbacks. Any thread.
final class FuseServer: Sendable {
    static let maximumWrite: UInt32 = 1 << 20

    let fileSystem: any LockableFileSystem
    let gate: LockGate
    let lifetimes: ReplyLifetimes
    /// Directories in which the kernel may not have linked all names yet, displaced from the workers' `linkedNames`.
    let unlinked = DueNotifications(batch: 512)
    /// The parts of files that a failed or short write request has not written.
    ///
    /// write(2) fills pages of the page cache before the kernel sends the request. After a failure they stay in
    /// programs' mappings, although the kernel no longer counts them as up to date (fuse_send_write_pages in
    /// fs/fuse/file.c). A byte stored there would make the kernel write the whole page. So a lock ends only once they
    /// are dropped.
    let unwritten = DueNotifications(batch: 1)
    /// True if a lock can wait until the kernel has linked the names of a listing.
    let linksListings: Bool
    let bypassesKernelCache: Bool
    /// True if the kernel checks modes and ACLs (default_permissions).
    let kernelChecks: Bool
    let logger: Logger
    let requests = Atomic<UInt64>(0)
    /// True if the kernel may cache missing names.
    let keepsMissingNames = Atomic<Bool>(true)
    let refusals = RepeatedRefusals()
    let quickOpens = DeferredOpens(mostThreads: 4)
    let commandOpens = DeferredOpens(mostThreads: 32)
    let scheduler = WorkerScheduler()
    /// Wakes the thread that works beside the workers.
    let helperWake: LinuxSystem.Semaphore
    let ahead: ReadAhead
    let helper: RequestHelper
    /// Size of the block cache, in bytes.
    let cacheSize: Int
    /// `max_read` of the mount options, in bytes. 0 if it is absent.
    let maximumRead: UInt32
    /// The INIT flags from `linux_fuse_offered_flags` to add to libfuse's reply to that request.
    let offeredFlags = Atomic<UInt32>(0)
    /// The generation of all node ids. It is random, so a file handle from another mount of the same vault leads to
    /// nothing in this one.
    let generation = UInt64(UInt32.random(in: 1...UInt32.max))
    /// True once the INIT reply asks the kernel to send the longer SETXATTR request.
    let extendsSetxattr = Atomic<Bool>(false)
    /// Called with an inode whose permissions have changed, if the kernel does not check them.
    let onPermissions = Observer<(inode: UInt64, deniesSearch: Bool)>()
    let onDamage = Observer<Damage>()
    let damage = DamageLog()
    private let workers = Monitor<[Worker]>([])
    /// The number of wiping rounds so far.
    private let wipes = Atomic<Int>(0)
    /// The key of the thread's `Worker`.
    private let workerKey: pthread_key_t
    /// Interrupts a worker's read of /dev/fuse. Its handler does nothing.
    private static let wakeSignal = SIGURG

    init(fileSystem: any LockableFileSystem, options: SessionOptions, logger: Logger) {
        self.fileSystem = fileSystem
        gate = fileSystem.gate
        cacheSize = fileSystem.cache.capacity
        lifetimes = ReplyLifetimes(seconds: fileSystem.ownsSource ? 60 : 1)
        linksListings = KernelRelease.current < KernelRelease.withoutDirectoryLock
        bypassesKernelCache = options.bypassesKernelCache
        // Root may do everything in the store, but the kernel must check processes of root without capabilities, or
        // with another identity from setfsuid(2).
        kernelChecks = geteuid() == 0 || !(options.isPrivate && fileSystem.checksAccess)
        maximumRead = options.maximumRead
        self.logger = logger
        helperWake = LinuxSystem.Semaphore()
        ahead = ReadAhead(wake: helperWake)
        helper = RequestHelper(wake: helperWake)
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        workerKey = key
    }

    deinit { pthread_key_delete(workerKey) }

    /// The calling thread's worker.
    var worker: Worker {
        guard let pointer = pthread_getspecific(workerKey) else {
            preconditionFailure("internal error: a request on a thread that is no worker")
        }
        return Unmanaged<Worker>.fromOpaque(pointer).takeUnretainedValue()
    }

    /// Leaves the gate, so that a lock does not wait for this request. Only for requests that return no plaintext,
    /// change nothing, and may take long.
    func leaveGate() {
        let worker = worker
        worker.hasLeftGate.store(true, ordering: .releasing)
        gate.leave(worker.inFlight)
    }

    /// - Parameter object: the object of the request, or the directory whose names it concerns.
    func log(_ error: StoreError, _ operation: StaticString, _ object: NodeID) {
        switch error {
        case .damaged(let reason): report(Damage(reason, at: fileSystem.path(of: object)))
        case .crypto(let reason): logger.critical("\(operation): \(reason)")
        case .system: fileSystem.failed(error)
        case .refused, .unavailable: break
        }
    }

    func report(_ found: Damage) {
        var found = found
        let isNew = damage.add(found)
        // A request outside of the gate may arrive here after the lock has made the log forget its names.
        if gate.state != .unlocked {
            damage.forgetNames()
            found.path?.plaintext = nil
        }
        guard isNew else { return }
        logger.error("\(found.message)")
        onDamage.notify(found)
    }

    // MARK: Workers

    /// The start of the oldest current request. Nil without requests.
    var oldestRequest: Int? {
        workers.access { $0.map { $0.started.load(ordering: .relaxed) }.filter { $0 != 0 }.min() }
    }

    /// Installs the wake signal's empty handler. Must be called before the first worker starts.
    func ignoreWakeSignal() {
        var ignore = sigaction()
        ignore.__sigaction_handler.sa_handler = { _ in }
        sigaction(Self.wakeSignal, &ignore, nil)
    }

    /// Runs a worker thread.
    func work(_ session: OpaquePointer) {
        // New files need the caller's umask. Without CLONE_FS this thread has a umask of its own (umask(2)). Otherwise
        // callers' umasks would mix.
        guard linux_unshare_fs() == 0 else { return logger.critical("unshare: \(currentErrno())") }
        asWorker { worker in
            (worker.workspace as? any SharingWorkerBuffers)?.helper = helper
            serveRequests(session, worker)
        }
    }

    /// Runs the thread that does a part of large requests, and decrypts ahead of reads in order. A lock wipes its
    /// buffers. Each piece decrypted ahead enters the gate, like a request. A part of a request is already inside.
    func workBeside(_ session: OpaquePointer) {
        asWorker { worker in
            ahead.serve(true)
            helper.attach()
            defer {
                helper.detach()
                ahead.serve(false)
            }
            var wiped = 0
            while fuse_session_exited(session) == 0 {
                wipeIfAsked(worker, &wiped)
                guard helperWake.wait() else { continue }
                helper.serve(worker.workspace)
                guard let work = ahead.next() else { continue }
                helper.useAllCores()
                var goesOn = true
                while goesOn, wipes.load(ordering: .acquiring) == wiped, fuse_session_exited(session) == 0 {
                    gate.enter(worker.inFlight)
                    // During a lock even an available class gets nothing ahead, because its last close purges it.
                    goesOn = gate.isUnlocked() && work.step(worker.workspace)
                    gate.leave(worker.inFlight)
                    helper.serve(worker.workspace)
                }
                ahead.finish()
            }
        }
    }

    private func asWorker(_ body: (Worker) -> Void) {
        // Unblock the signal, which the creating thread may have blocked.
        var wake = sigset_t()
        sigemptyset(&wake)
        sigaddset(&wake, Self.wakeSignal)
        pthread_sigmask(SIG_UNBLOCK, &wake, nil)
        let inFlight = gate.register()
        defer { gate.unregister(inFlight) }
        do {
            let worker = Worker(
                workspace: try fileSystem.makeWorkspace(), inFlight: inFlight,
                linkedNames: LinkedNames(displaced: unlinked))
            pthread_setspecific(workerKey, Unmanaged.passUnretained(worker).toOpaque())
            workers.update { $0.append(worker) }
            body(worker)
            workers.update { $0.removeAll { $0 === worker } }
            pthread_setspecific(workerKey, nil)
        } catch {
            logger.critical("cannot make a worker's buffers: \(error)")
        }
    }

    /// Receives requests, admits, serves and answers them, one at a time.
    private func serveRequests(_ session: OpaquePointer, _ worker: Worker) {
        // Keep the schedule in a local variable, because each access to a class's property is checked for exclusivity
        // at run time (seen with callgrind).
        var schedule = WorkerSchedule(scheduler)
        var wiped = 0
        while fuse_session_exited(session) == 0 {
            wipeIfAsked(worker, &wiped)
            if schedule.restIfNotNeeded() { continue }
            schedule.poll { Self.isRequestThere(session) }
            worker.isReceiving.store(true, ordering: .relaxed)
            let received = fuse_session_receive_buf(session, &worker.message)
            worker.isReceiving.store(false, ordering: .relaxed)
            if received == -EINTR { continue }
            guard received > 0 else {
                if received < 0 { logger.critical("/dev/fuse: \(Errno(rawValue: -Int32(received)))") }
                break
            }
            worker.setxattrFlags =
                extendsSetxattr.load(ordering: .relaxed)
                ? linux_fuse_shorten_setxattr(worker.message.mem, &worker.message.size) : 0
            let now = monotonicNanoseconds()
            worker.started.store(now, ordering: .relaxed)
            schedule.began(UnsafeRawBufferPointer(start: worker.message.mem, count: worker.message.size), at: now)
            gate.enter(worker.inFlight)
            fuse_session_process_buf(session, &worker.message)
            if worker.isRefused { worker.wipeRequest(received) }
            gate.leave(worker.inFlight)
            worker.hasLeftGate.store(false, ordering: .releasing)
            worker.started.store(0, ordering: .relaxed)
            // Interrupt the others, which wait in read(2), because the kernel would wake them in turns and in vain. A
            // worker that has just received a request repeats the interrupted call.
            if schedule.ended(at: monotonicNanoseconds()) {
                _ = wake { $0 !== worker && $0.isReceiving.load(ordering: .relaxed) }
            }
        }
    }

    /// Returns true if a worker would not wait in read(2), or if the poll was interrupted.
    static func isRequestThere(_ session: OpaquePointer) -> Bool {
        var device = pollfd(fd: fuse_session_fd(session), events: Int16(POLLIN), revents: 0)
        return poll(&device, 1, 0) != 0
    }

    /// Wakes all workers until they have ended, after the session has exited.
    func wakeUntilEnded() {
        // A signal just before the read is lost, so repeat.
        while wake({ _ in true }) { usleep(10_000) }
    }

    /// Wakes the workers for which `isMeant` returns true. Returns false if all workers have ended.
    private func wake(_ isMeant: (Worker) -> Bool) -> Bool {
        workers.access { workers in
            for worker in workers where isMeant(worker) { pthread_kill(worker.thread, Self.wakeSignal) }
            return !workers.isEmpty
        }
    }

    /// The directories in which the kernel may still be linking names of our replies.
    var unlinkedDirectories: Set<UInt64> {
        workers.access { workers in
            workers.reduce(into: Set(unlinked.all.keys)) { $0.formUnion($1.linkedNames.directories) }
        }
    }

    /// The time to wait for a busy worker, for example in fsync(2). It wipes once its request is done.
    private static let wipeTimeout = Duration.seconds(10)

    func wipeWorkers(waitingForAll: Bool) -> [String] {
        damage.forgetNames()
        let round = wipes.add(1, ordering: .acquiringAndReleasing).newValue
        let deadline = ContinuousClock.now + Self.wipeTimeout
        while .now < deadline {
            _ = wake { $0.wiped < round }
            // A signal just before the read is lost, so repeat until all have wiped.
            let isDone = workers.wait(until: .now + .milliseconds(2)) { workers -> Bool? in
                workers.allSatisfy { worker in
                    worker.wiped >= round || !waitingForAll && worker.hasLeftGate.load(ordering: .acquiring)
                } ? true : nil
            }
            if isDone != nil { return [] }
        }
        return ["the buffers of a thread that is busy"]
    }

    /// Waits until every worker has wiped its buffers in the last round. Returns the number of those still to wipe.
    func awaitWipedWorkers(until deadline: ContinuousClock.Instant) -> Int {
        let round = wipes.load(ordering: .acquiring)
        let left = { @Sendable (workers: [Worker]) in workers.count { $0.wiped < round } }
        return workers.wait(until: deadline) { left($0) == 0 ? 0 : nil } ?? workers.access { left($0) }
    }

    /// - Parameter wiped: the last round in which the thread has wiped its buffers.
    private func wipeIfAsked(_ worker: Worker, _ wiped: inout Int) {
        let round = wipes.load(ordering: .acquiring)
        guard round != wiped else { return }
        wiped = round
        // The message may hold written plaintext. The allocator overwrites freed memory.
        free(worker.message.mem)
        worker.message = fuse_buf()
        worker.workspace.wipe()
        workers.update { _ in worker.wiped = round }
    }
}
