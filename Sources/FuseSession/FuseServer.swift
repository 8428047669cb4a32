internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import Synchronization
internal import SystemPackage

/// The workers of a session, and the state that libfuse's callbacks share. Any thread.
final class FuseServer: Sendable {
    static let maximumWrite: UInt32 = 1 << 20

    let fileSystem: any LockableFileSystem
    let gate: LockGate
    /// Seconds for which the kernel may cache names and attributes.
    let timeout: Double
    let bypassesKernelCache: Bool
    let logger: Logger
    let requests = Atomic<UInt64>(0)
    /// True if the kernel may cache that a name does not exist.
    let keepsMissingNames = Atomic<Bool>(true)
    let refusals = RepeatedRefusals()
    let quickOpens = DeferredOpens(mostThreads: 4)
    let commandOpens = DeferredOpens(mostThreads: 32)
    let scheduler = WorkerScheduler()
    let ahead = ReadAhead()
    /// Size of the block cache, in bytes.
    let cacheSize: Int
    /// `max_read` of the mount options, in bytes. 0 if none was given.
    let maximumRead: UInt32
    /// The INIT flags from `linux_fuse_offered_flags` that are added to libfuse's reply to that request.
    let offeredFlags = Atomic<UInt32>(0)
    /// The generation of all node ids. It is random, so a file handle from another mount of the same vault leads to
    /// nothing in this one.
    let generation = UInt64(UInt32.random(in: 1...UInt32.max))
    /// True once the INIT reply asks the kernel to send the longer SETXATTR request.
    let extendsSetxattr = Atomic<Bool>(false)
    let onDamage = Observer<Damage>()
    let damage = DamageLog()
    private let workers = Monitor<[Worker]>([])
    /// Number of wiping rounds so far.
    private let wipes = Atomic<Int>(0)
    /// Holds the thread's `Worker`.
    private let workerKey: pthread_key_t
    /// Interrupts a worker's read of /dev/fuse. Its handler does nothing.
    private static let wakeSignal = SIGURG

    init(fileSystem: any LockableFileSystem, options: MountOptions, logger: Logger) {
        self.fileSystem = fileSystem
        gate = fileSystem.gate
        cacheSize = fileSystem.cache.capacity
        timeout = fileSystem.ownsSource ? 60 : 1
        bypassesKernelCache = options.bypassesKernelCache
        maximumRead = options.maximumRead
        self.logger = logger
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

    /// Leaves the gate, so that a lock does not wait for this request. Only for requests that return no plaintext, change
    /// nothing, and may take long.
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
        case .system: break
        }
    }

    func report(_ found: Damage) {
        var found = found
        let isNew = damage.add(found)
        // A request that has left the gate may come here after the lock has made the log forget its names.
        if gate.state != .unlocked {
            damage.forgetNames()
            found.path?.plaintext = nil
        }
        guard isNew else { return }
        logger.error("\(found.message)")
        onDamage.notify(found)
    }

    // MARK: Workers

    /// Must be called before the first worker starts.
    func ignoreWakeSignal() {
        var ignore = sigaction()
        ignore.__sigaction_handler.sa_handler = { _ in }
        sigaction(Self.wakeSignal, &ignore, nil)
    }

    /// The body of a worker thread.
    func work(_ session: OpaquePointer) {
        // Creating files needs the caller's umask. Without CLONE_FS this thread has a umask of its own (umask(2)).
        // Otherwise callers' umasks would mix.
        guard linux_unshare_fs() == 0 else { return logger.critical("unshare: \(currentErrno())") }
        asWorker { serveRequests(session, $0) }
    }

    /// The body of the thread that decrypts ahead of reads in order. Like a request, a piece passes the gate, and a lock
    /// wipes the buffers.
    func workAhead(_ session: OpaquePointer) {
        asWorker { worker in
            ahead.serve(true)
            defer { ahead.serve(false) }
            var wiped = 0
            while fuse_session_exited(session) == 0 {
                wipeIfAsked(worker, &wiped)
                guard let work = ahead.next() else { continue }
                var goesOn = true
                while goesOn, wipes.load(ordering: .acquiring) == wiped, fuse_session_exited(session) == 0 {
                    gate.enter(worker.inFlight)
                    // During a lock even a class that stays available gets nothing ahead: its last close purges it.
                    goesOn = gate.isUnlocked() && work.step(worker.workspace)
                    gate.leave(worker.inFlight)
                }
                ahead.finish()
            }
        }
    }

    private func asWorker(_ body: (Worker) -> Void) {
        // The thread that created this one may have blocked the signal.
        var wake = sigset_t()
        sigemptyset(&wake)
        sigaddset(&wake, Self.wakeSignal)
        pthread_sigmask(SIG_UNBLOCK, &wake, nil)
        let inFlight = gate.register()
        defer { gate.unregister(inFlight) }
        do {
            let worker = Worker(workspace: try fileSystem.makeWorkspace(), inFlight: inFlight)
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
        // A local variable and not a property of the worker, because each access to a property of a class is checked for
        // exclusivity at run time (seen with callgrind).
        var schedule = WorkerSchedule(scheduler)
        var wiped = 0
        while fuse_session_exited(session) == 0 {
            wipeIfAsked(worker, &wiped)
            if schedule.restIfNotNeeded() { continue }
            let received = fuse_session_receive_buf(session, &worker.message)
            if received == -EINTR { continue }
            guard received > 0 else {
                if received < 0 { logger.critical("/dev/fuse: \(Errno(rawValue: -Int32(received)))") }
                break
            }
            worker.setxattrFlags =
                extendsSetxattr.load(ordering: .relaxed)
                ? linux_fuse_shorten_setxattr(worker.message.mem, &worker.message.size) : 0
            schedule.began(worker.message)
            gate.enter(worker.inFlight)
            fuse_session_process_buf(session, &worker.message)
            gate.leave(worker.inFlight)
            worker.hasLeftGate.store(false, ordering: .releasing)
            schedule.ended()
        }
    }

    /// Wakes all workers until they have ended, after the session has exited.
    func wakeUntilEnded() {
        // A signal just before the read is lost, so repeat.
        while wake({ _ in true }) { usleep(10_000) }
    }

    /// Wakes the workers for which `isMeant` returns true. Returns false if there is no worker.
    private func wake(_ isMeant: (Worker) -> Bool) -> Bool {
        workers.update { workers in
            for worker in workers where isMeant(worker) { pthread_kill(worker.thread, Self.wakeSignal) }
            return !workers.isEmpty
        }
    }

    /// Time, in milliseconds, to wait for a busy worker, for example in fsync(2). It wipes when its request is done.
    private static let wipeTimeoutMilliseconds = 10_000

    func wipeWorkers(waitingForAll: Bool) -> [String] {
        damage.forgetNames()
        let round = wipes.add(1, ordering: .acquiringAndReleasing).newValue
        let end = monotonicMilliseconds() + Self.wipeTimeoutMilliseconds
        while monotonicMilliseconds() < end {
            _ = wake { $0.wiped < round }
            // A signal just before the read is lost, so repeat until all have wiped.
            let isDone = workers.wait(until: monotonicDeadline(inMilliseconds: 2)) { workers -> Bool? in
                workers.allSatisfy { worker in
                    worker.wiped >= round || !waitingForAll && worker.hasLeftGate.load(ordering: .acquiring)
                } ? true : nil
            }
            if isDone != nil { return [] }
        }
        return ["the buffers of a thread that is busy"]
    }

    /// - Parameter wiped: the last round in which the thread has wiped its buffers.
    private func wipeIfAsked(_ worker: Worker, _ wiped: inout Int) {
        let round = wipes.load(ordering: .acquiring)
        guard round != wiped else { return }
        wiped = round
        // It may hold written plaintext. Freed memory is overwritten.
        free(worker.message.mem)
        worker.message = fuse_buf()
        worker.workspace.wipe()
        workers.update { _ in worker.wiped = round }
    }
}

/// The state of one worker thread.
final class Worker: @unchecked Sendable {
    // @unchecked: other threads use `thread` and `hasLeftGate`, and `wiped` under the mutex of the server's list.
    let thread = pthread_self()
    let workspace: any WorkerBuffers
    let inFlight: LockGate.InFlight
    /// The current request, as the kernel sent it.
    var message = fuse_buf()
    /// `setxattr_flags` of the current request, which libfuse 3.14 does not pass on.
    var setxattrFlags: UInt32 = 0
    /// True during a request that a lock does not wait for.
    let hasLeftGate = Atomic<Bool>(false)
    /// The last wiping round that it has taken part in.
    var wiped = 0
    /// The thread's umask. Nil if it was not set yet.
    private var creationMask: mode_t?

    init(workspace: any WorkerBuffers, inFlight: LockGate.InFlight) {
        (self.workspace, self.inFlight) = (workspace, inFlight)
    }

    /// umask(2) of this thread, which has one of its own.
    func setCreationMask(_ mask: mode_t) {
        if creationMask == mask { return }
        umask(mask)
        creationMask = mask
    }

    deinit { free(message.mem) }
}

/// One request of the kernel, in a callback of libfuse.
struct Request {
    let raw: fuse_req_t
    let server: FuseServer

    var fileSystem: any LockableFileSystem { server.fileSystem }

    /// Runs a callback's body. An error that it throws is the reply.
    /// - Parameters:
    ///   - object: the object of the request, or the directory whose names it concerns.
    ///   - isUse: true if the request counts as use of the mount, which delays the lock of an idle one.
    @inline(__always)
    static func serve(
        _ raw: fuse_req_t?, _ operation: StaticString, _ object: fuse_ino_t, isUse: Bool = true,
        _ body: (Request) throws(StoreError) -> Void
    ) {
        guard let raw else { return }
        let server = Unmanaged<FuseServer>.fromOpaque(fuse_req_userdata(raw)).takeUnretainedValue()
        server.requests.add(1, ordering: .relaxed)
        if isUse { server.gate.markActivity() }
        do throws(StoreError) {
            try body(Request(raw: raw, server: server))
        } catch {
            server.log(error, operation, NodeID(object))
            fuse_reply_err(raw, error.errno.rawValue)
        }
    }

    /// Does the same as `serve`, and replies success.
    static func perform(
        _ raw: fuse_req_t?, _ operation: StaticString, _ object: fuse_ino_t,
        _ body: (Request) throws(StoreError) -> Void
    ) {
        serve(raw, operation, object) { (request) throws(StoreError) in
            try body(request)
            fuse_reply_err(request.raw, 0)
        }
    }

    /// Serves a request that makes an object.
    static func make(
        _ raw: fuse_req_t?, _ operation: StaticString, _ name: UnsafePointer<CChar>?, in parent: fuse_ino_t,
        _ object: NewObject
    ) {
        serve(raw, operation, parent) { (request) throws(StoreError) in
            request.reply(try request.fileSystem.make(bytes(name), in: NodeID(parent), object, for: request.creator()))
        }
    }

    /// The caller, as owner of a new object. Gives this thread, which has a umask of its own, the caller's umask.
    func creator() -> Caller {
        let context = fuse_req_ctx(raw).pointee
        server.worker.setCreationMask(context.umask)
        return Caller(uid: context.uid, gid: context.gid)
    }

    /// - Parameter withGroups: true to read the supplementary groups, from /proc.
    func caller(withGroups: Bool) -> Caller {
        let context = fuse_req_ctx(raw).pointee
        var caller = Caller(uid: context.uid, gid: context.gid)
        if withGroups && context.uid != 0 {
            var groups = [gid_t](repeating: 0, count: 256)
            let count = fuse_req_getgroups(raw, Int32(groups.count), &groups)
            caller.groups = Array(groups.prefix(max(0, min(Int(count), groups.count))))
        }
        return caller
    }

    /// Clears the set-id bits if the kernel asks for it (FUSE_HANDLE_KILLPRIV_V2), which libfuse 3.14 does not pass on.
    func dropSetIDIfAsked(_ id: fuse_ino_t) throws(StoreError) {
        let message = server.worker.message
        guard linux_fuse_kills_privileges(message.mem, message.size) != 0 else { return }
        try dropSetID(id)
    }

    /// Clears the set-id bits where the kernel never asks for it: fallocate(2), copy_file_range(2).
    func dropSetIDUnlessRoot(_ id: fuse_ino_t) throws(StoreError) {
        if fuse_req_ctx(raw).pointee.uid != 0 { try dropSetID(id) }
    }

    /// True if the caller may clear set-id bits without writing. The kernel refuses other callers, except in chown(2)
    /// with neither owner nor group, which reaches us as a SETATTR of nothing.
    func mayClearSetID(_ id: fuse_ino_t) throws(StoreError) -> Bool {
        let uid = fuse_req_ctx(raw).pointee.uid
        if uid == 0 { return true }
        return try fileSystem.attributes(NodeID(id)).st_uid == uid
    }

    /// Clears the set-group-ID bit after an access ACL was set, if the kernel asks for it (FUSE_SETXATTR_EXT). The
    /// daemon has the right to keep the bit, but the caller does not. The kernel holds the inode's lock, so nobody
    /// changes the mode in between.
    func clearSetGroupIDIfAsked(_ id: fuse_ino_t) throws(StoreError) {
        guard linux_fuse_kills_setgid(server.worker.setxattrFlags) != 0 else { return }
        let mode = try fileSystem.attributes(NodeID(id)).st_mode
        guard mode & S_ISGID != 0 else { return }
        var changes = AttributeChanges()
        changes.mode = mode & 0o7777 & ~S_ISGID
        _ = try fileSystem.change(self, NodeID(id), changes, nil)
    }

    private func dropSetID(_ id: fuse_ino_t) throws(StoreError) {
        try fileSystem.dropSetID(NodeID(id)) { caller(withGroups: true) }
    }

    /// Answers a read that failed, with a delay if the kernel repeats the same read again and again.
    func refuse(read id: fuse_ino_t, at offset: off_t, _ error: StoreError) throws(StoreError) {
        let thread = UInt32(bitPattern: fuse_req_ctx(raw).pointee.pid)
        let read = RepeatedRefusals.Read(thread: thread, node: id, offset: Int64(offset))
        guard server.refusals.isRepeated(read) else { throw error }
        server.refusals.answerLater(raw, error.errno.rawValue)
    }

    func reply(_ entry: NodeEntry) {
        var parameters = parameters(entry)
        if fuse_reply_entry(raw, &parameters) != 0 { fileSystem.forget(entry.id, count: 1) }
    }

    func reply(attributes: stat) {
        var attributes = attributes
        fuse_reply_attr(raw, &attributes, server.timeout)
    }

    func reply(_ bytes: UnsafeRawBufferPointer) {
        fuse_reply_buf(raw, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count)
    }

    /// Replies as getxattr(2): the value's size if `size` is 0, ERANGE if it is too small.
    func reply(attribute value: [UInt8], size: Int) throws(StoreError) {
        if size == 0 {
            fuse_reply_xattr(raw, value.count)
        } else if size < value.count {
            throw .system(.outOfRange)
        } else {
            value.withUnsafeBytes { reply($0) }
        }
    }

    func parameters(_ entry: NodeEntry) -> fuse_entry_param {
        var parameters = fuse_entry_param()
        parameters.ino = entry.id.rawValue
        parameters.generation = server.generation
        parameters.attr = entry.attributes
        parameters.attr_timeout = server.timeout
        parameters.entry_timeout = server.timeout
        return parameters
    }
}

/// The bytes of a name or link target from the kernel.
func bytes(_ text: UnsafePointer<CChar>?) -> [UInt8] {
    guard let text else { return [] }
    return [UInt8](UnsafeRawBufferPointer(start: text, count: strlen(text)))
}
