internal import CFuse
internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import Synchronization
internal import SystemPackage

/// The state that libfuse's callbacks share: the file system, the threads' workers, and the log. Any thread.
final class FuseServer: Sendable {
    static let maximumWrite: UInt32 = 1 << 20
    /// The changes of SETATTR that we apply.
    static let knownAttributes =
        FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_SIZE | FUSE_SET_ATTR_ATIME
        | FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW

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
    let scheduler = WorkerScheduler()
    /// `max_read` of the mount options, in bytes. 0 if none was given.
    let maximumRead: UInt32
    /// The INIT flags from `linux_fuse_offered_flags` that are added to libfuse's reply to that request.
    let offeredFlags = Atomic<UInt32>(0)
    /// The generation of all node ids. It is random, so a file handle from another mount of the same vault leads to
    /// nothing in this one.
    let generation = UInt64(UInt32.random(in: 1...UInt32.max))
    /// True once the INIT reply asks the kernel to send the longer SETXATTR request.
    let extendsSetxattr = Atomic<Bool>(false)
    /// Called with each damage that is found.
    let onDamage = Mutex<(@Sendable (String) -> Void)?>(nil)
    /// Holds the thread's `Worker`.
    private let workerKey: pthread_key_t

    init(fileSystem: any LockableFileSystem, options: MountOptions, logger: Logger) {
        self.fileSystem = fileSystem
        gate = fileSystem.gate
        timeout = fileSystem.cacheSeconds
        bypassesKernelCache = options.bypassesKernelCache
        maximumRead = options.maximumRead
        self.logger = logger
        var key = pthread_key_t()
        pthread_key_create(&key, nil)
        workerKey = key
    }

    deinit {
        pthread_key_delete(workerKey)
    }

    /// Makes the calling thread a worker while `body` runs.
    func withWorker(_ inFlight: LockGate.InFlight, _ body: (Worker) -> Void) throws(StoreError) {
        let worker = Worker(workspace: try fileSystem.makeWorkspace(), inFlight: inFlight)
        pthread_setspecific(workerKey, Unmanaged.passUnretained(worker).toOpaque())
        body(worker)
        pthread_setspecific(workerKey, nil)
        withExtendedLifetime(worker) {}
    }

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

    func log(_ error: StoreError, _ operation: StaticString) {
        switch error {
        case .damaged(let reason):
            logger.error("\(operation): \(reason)")
            onDamage.withLock { $0 }?("\(operation): \(reason)")
        case .crypto(let reason): logger.critical("\(operation): \(reason)")
        case .system: break
        }
    }
}

/// The state of one worker thread.
final class Worker: @unchecked Sendable {
    // @unchecked: other threads use `hasLeftGate` only.
    let workspace: any WorkerBuffers
    let inFlight: LockGate.InFlight
    /// The current request, as the kernel sent it.
    var message = fuse_buf()
    /// `setxattr_flags` of the current request, which libfuse 3.14 does not pass on.
    var setxattrFlags: UInt32 = 0
    /// True during a request that a lock does not wait for.
    let hasLeftGate = Atomic<Bool>(false)

    init(workspace: any WorkerBuffers, inFlight: LockGate.InFlight) {
        (self.workspace, self.inFlight) = (workspace, inFlight)
    }

    deinit {
        free(message.mem)
    }
}

/// One request of the kernel, in a callback of libfuse.
struct Request {
    let raw: fuse_req_t
    let server: FuseServer

    var fileSystem: any LockableFileSystem { server.fileSystem }

    /// Runs a callback's body. An error that it throws is the reply.
    /// - Parameter isUse: true if the request counts as use of the mount, which delays the lock of an idle one.
    @inline(__always)
    static func serve(
        _ raw: fuse_req_t?, _ operation: StaticString, isUse: Bool = true,
        _ body: (Request) throws(StoreError) -> Void
    ) {
        guard let raw else { return }
        let server = Unmanaged<FuseServer>.fromOpaque(fuse_req_userdata(raw)).takeUnretainedValue()
        server.requests.add(1, ordering: .relaxed)
        if isUse { server.gate.noteActivity() }
        do throws(StoreError) {
            try body(Request(raw: raw, server: server))
        } catch {
            server.log(error, operation)
            fuse_reply_err(raw, error.errno.rawValue)
        }
    }

    /// The caller, as owner of a new object. Gives this thread, which has a umask of its own, the caller's umask.
    func creator() -> Caller {
        let context = fuse_req_ctx(raw).pointee
        umask(context.umask)
        return Caller(uid: context.uid, gid: context.gid)
    }

    /// The caller.
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
        return try fileSystem.attributes(NodeID(rawValue: id)).st_uid == uid
    }

    /// Clears the set-group-ID bit after an access ACL was set, if the kernel asks for it (FUSE_SETXATTR_EXT). The
    /// daemon has the right to keep the bit, but the caller does not. The kernel holds the inode's lock, so nobody
    /// changes the mode in between.
    func clearSetGroupIDIfAsked(_ id: fuse_ino_t) throws(StoreError) {
        guard linux_fuse_kills_setgid(server.worker.setxattrFlags) != 0 else { return }
        let mode = try fileSystem.attributes(NodeID(rawValue: id)).st_mode
        guard mode & S_ISGID != 0 else { return }
        var changes = AttributeChanges()
        changes.mode = mode & 0o7777 & ~S_ISGID
        _ = try fileSystem.change(self, NodeID(rawValue: id), changes, nil)
    }

    private func dropSetID(_ id: fuse_ino_t) throws(StoreError) {
        try fileSystem.dropSetID(NodeID(rawValue: id)) { caller(withGroups: true) }
    }

    /// Answers a read that failed, with a delay if the kernel repeats the same read again and again.
    func refuse(read id: fuse_ino_t, at offset: off_t, _ error: StoreError) throws(StoreError) {
        let thread = fuse_req_ctx(raw).pointee.pid
        let read = RepeatedRefusals.Read(
            thread: UInt32(bitPattern: thread), node: id, offset: Int64(offset))
        guard server.refusals.isRepeated(read) else { throw error }
        server.refusals.answerLater(raw, error.errno.rawValue)
    }

    func reply() {
        fuse_reply_err(raw, 0)
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
