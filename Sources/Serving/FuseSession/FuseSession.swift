internal import CFuse
internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
package import Locking
package import Logging
internal import Synchronization
internal import SystemPackage

/// One FUSE mount: mounts, serves requests with worker threads until the unmount, then releases everything. Any thread
/// may call `run` and `requestUnmount`.
package final class FuseSession: @unchecked Sendable {
    // @unchecked: `init` sets `session` once, and libfuse's session may be used by many threads.
    let session: OpaquePointer
    let server: FuseServer
    let mountpoint: FilePath
    /// True if one notification drops all names (kernels from 6.16 on).
    let knowsEpochs: Bool
    /// True if the kernel frees inodes on request (kernels from 6.18 on).
    let freesInodes: Bool
    let newest: NameDropping
    /// MNT_DETACH of <sys/mount.h>, which Swift's Glibc lacks.
    private static let detach: Int32 = 2
    /// Locked by callers outside of `run` while they use the session, because `run` may be ending.
    private let hasEnded = Mutex(false)
    /// True once a request was answered through the mount. False if the session ended before this. Nil until then.
    private let firstAnswer = Monitor<Bool?>(nil)

    /// Two workers per core keep the cores busy while some wait for the disk.
    private static var workerCount: Int { max(4, min(16, sysconf(Int32(_SC_NPROCESSORS_ONLN)) * 2)) }

    /// Mounts. Afterwards programs see the mount, and their requests wait for `run`. Until the first answer, libfuse's
    /// messages are kept for the error instead of going to stderr.
    /// - Parameter directory: the mountpoint, open. Nil to mount at its path.
    /// - Throws: the reason, with libfuse's messages.
    package init(
        fileSystem: any LockableFileSystem, options: SessionOptions, on directory: Descriptor? = nil, logger: Logger
    ) throws(MountError) {
        let server = FuseServer(fileSystem: fileSystem, options: options, logger: logger)
        self.server = server
        mountpoint = options.mountpoint
        LibraryMessages.capture()
        do throws(MountError) {
            session = try Self.mount(server, options, on: directory)
        } catch {
            LibraryMessages.restore()
            throw error
        }
        Self.interceptMessages(of: session)
        newest = options.dropsNames
        knowsEpochs = newest >= .byEpoch && Self.startEpoch(session) == 0
        freesInodes = newest >= .byFreeingInodes && Self.free([], session) == 0
        nonisolated(unsafe) let session = session
        fileSystem.setAttributeObserver { inode in
            // This takes no lock of the inode, so a request may call it (fuse_reverse_inval_inode in fs/fuse/inode.c,
            // with a negative offset).
            _ = fuse_lowlevel_notify_inval_inode(session, inode, -1, 0)
        }
        let knowsEpochs = self.knowsEpochs
        server.onPermissions.set { inode, deniesSearch in
            // After a change of an ACL the kernel keeps the former mode (fuse_set_acl in fs/fuse/acl.c), and goes
            // through a directory by its known names, without asking if this is still allowed.
            _ = fuse_lowlevel_notify_inval_inode(session, inode, -1, 0)
            // Do not start an epoch more often, because an overlay above the mount then fails with ESTALE
            // (ovl_revalidate_real, seen on 6.18).
            if deniesSearch, knowsEpochs { _ = Self.startEpoch(session) }
        }
        fileSystem.setDamageObserver { [weak server] damage in server?.report(damage) }
        // We keep no list of missing names, so the kernel may cache them only if one notification drops all names.
        server.keepsMissingNames.store(knowsEpochs, ordering: .relaxed)
    }

    private static func mount(
        _ server: FuseServer, _ options: SessionOptions, on directory: Descriptor?
    ) throws(MountError) -> OpaquePointer {
        var arguments = fuse_args()
        defer { fuse_opt_free_args(&arguments) }
        for argument in ["vaultfs", "-o", options.argument(kernelChecks: server.kernelChecks)] {
            fuse_opt_add_arg(&arguments, argument)
        }
        var operations = makeOperations()
        let userdata = Unmanaged.passUnretained(server).toOpaque()
        guard
            let session = cfuse_session_new(&arguments, &operations, MemoryLayout<fuse_lowlevel_ops>.size, userdata)
        else { throw MountError(reason: "cannot mount: \(LibraryMessages.summary)") }
        // Make a copy for helpers to inherit, if root needs one.
        let copy = directory.map { Descriptor(owning: dup($0.fd)) }
        // An ordinary user mounts through fusermount3(1), which refuses links and has only that user's rights.
        let path = copy.flatMap { geteuid() == 0 ? FilePath("/proc/self/fd/\($0.fd)") : nil } ?? options.mountpoint
        let status = path.withPlatformString { path in
            LibraryMessages.capturingHelper { fuse_session_mount(session, path) }
        }
        withExtendedLifetime(copy) {}
        if status == 0 { return session }
        fuse_session_destroy(session)
        throw MountError(reason: "cannot mount at \(options.mountpoint): \(LibraryMessages.summary)")
    }

    /// Adds flags unknown to libfuse 3.14 to the reply to INIT (fuse_session_custom_io, fuse_lowlevel.h).
    private static func interceptMessages(of session: OpaquePointer) {
        var functions = fuse_custom_io()
        functions.read = { device, buffer, size, _ in read(device, buffer, size) }
        functions.writev = { device, parts, count, userdata in
            if let userdata, let parts {
                Unmanaged<FuseServer>.fromOpaque(userdata)._withUnsafeGuaranteedRef { server in
                    let flags = server.offeredFlags.load(ordering: .relaxed)
                    guard flags != 0, linux_fuse_add_flags(parts, count, flags) != 0 else { return }
                    // Set this before the kernel has the reply, because it sends longer requests from then on.
                    server.extendsSetxattr.store(linux_fuse_extends_setxattr(flags) != 0, ordering: .relaxed)
                    server.offeredFlags.store(0, ordering: .relaxed)
                }
            }
            return linux_fuse_reply(device, parts, count)
        }
        fuse_session_custom_io(session, &functions, fuse_session_fd(session))
    }

    /// Sets the function to call, from any thread, with found damage, at most once a minute for each object.
    package func onDamage(_ body: @escaping @Sendable (Damage) -> Void) { server.onDamage.set(body) }

    /// The damage found since the mount, the latest of each object.
    package var damage: [Damage] { server.damage.all }

    /// Unmounts, instead of `run`.
    /// - Parameter device: as for `run`.
    package func cancel(device: UInt64?) {
        LibraryMessages.restore()
        let root = openRoot(device: device)
        // libfuse unmounts by path. An ordinary user's helper requires a path, and has only that user's rights.
        if root != nil, geteuid() != 0 { fuse_session_unmount(session) }
        // This always closes the device, which ends the connection. It comes before the unmount, because the kernel
        // would then write dirty pages back and wait for workers that have ended.
        fuse_session_destroy(session)
        if let root, geteuid() == 0 { umount2("/proc/self/fd/\(root.fd)", Self.detach) }
    }

    /// Opens the root of the mount as a path, which sends no request. Nil if it is unmounted or if its path leads
    /// elsewhere: a lazy unmount removes a mount while programs still use it, and users can move their directories.
    private func openRoot(device: UInt64?) -> Descriptor? {
        guard isConnected,
            let root = try? Descriptor(path: mountpoint, flags: linux_O_PATH | O_DIRECTORY | O_NOFOLLOW),
            device.map({ linux_known_device(root.fd) == $0 }) ?? true
        else { return nil }
        return root
    }

    /// Serves requests until the file system is unmounted, then seals the written files. Blocks.
    /// - Parameters:
    ///   - whenAnswering: called when the first request has been answered through the mount.
    ///   - whenUnmounted: called after the last request. Once it has returned, this session must not be used.
    ///   - device: `st_dev` of the mount. If another mount is at the mountpoint, it stays. Nil if only this process can
    ///     change the mountpoint.
    /// - Throws: if the session ended before it answered a request. The mount no longer exists then.
    package func run(
        whenAnswering: () -> Void = {}, whenUnmounted: () -> Void, device: UInt64? = nil
    ) throws(MountError) {
        server.ignoreWakeSignal()
        let sealer = try? BackgroundThread { [server] in server.fileSystem.runInBackground() }
        let workers = startWorkers()
        let helpers = startThreadsBesideWorkers()
        let request = try? BackgroundThread { [self] in requestFirstAnswer() }
        if request == nil { endEarly() }
        let isAnswering = firstAnswer.wait { $0 }
        let reason = LibraryMessages.last ?? "the mount ended before its first answer, see the log"
        LibraryMessages.restore()
        if isAnswering { whenAnswering() }
        for thread in workers { thread.join() }
        server.scheduler.dismiss()
        server.helperWake.post()
        server.fileSystem.endDeferred()
        server.quickOpens.end()
        server.commandOpens.end()
        server.refusals.stop()
        endNotifications()
        for thread in helpers { thread.join() }
        whenUnmounted()
        hasEnded.withLock { hasEnded in
            hasEnded = true
            // Unmount before the sealing, which may take long, so that programs get ENOTCONN instead of waiting.
            cancel(device: device)
        }
        // The end of the connection has ended this thread's request.
        request?.join()
        server.fileSystem.shutDown()
        sealer?.join()
        if !isAnswering { throw MountError(reason: "cannot mount at \(mountpoint): \(reason)") }
    }

    private func startWorkers() -> [BackgroundThread] {
        let threads = (0..<Self.workerCount).compactMap { _ in
            try? BackgroundThread { [self] in
                server.work(session)
                endEarly()
            }
        }
        if threads.isEmpty {
            server.logger.critical("cannot start a thread")
            endEarly()
        }
        return threads
    }

    /// Starts the watch over the single worker, the thread of delayed refusals, the one that works beside the workers,
    /// and those of due notifications. `endNotifications` ends the last ones.
    private func startThreadsBesideWorkers() -> [BackgroundThread] {
        let watch = try? BackgroundThread { [self] in
            server.scheduler.watch { FuseServer.isRequestThere(session) }
        }
        // Without the watch, all workers must serve.
        if watch == nil { server.scheduler.dismiss() }
        let refuser = try? BackgroundThread { [server] in server.refusals.run() }
        if refuser == nil { server.refusals.stop() }
        // Without this thread, nothing is decrypted ahead, and each worker serves large requests alone.
        let second = try? BackgroundThread { [self] in server.workBeside(session) }
        // Without these threads, a lock or an unlock does their work.
        try? server.unlinked.start { [self] directory, _ in awaitLinkedNames(in: directory) }
        try? server.unwritten.start { [self] in _ = dropPages(of: $0, in: $1) }
        return [watch, refuser, second].compactMap { $0 }
    }

    /// Asks for the root's attributes, as a program does. The kernel does not have them yet, so it sends a request. The
    /// file system returns them in every state.
    private func requestFirstAnswer() {
        var status = stat()
        let isAnswered = mountpoint.withPlatformString { stat($0, &status) } == 0
        // After an unmount the path leads to the bare directory.
        let isOurs = isAnswered && server.requests.total > 0
        firstAnswer.update { if $0 == nil { $0 = isOurs } }
        if !isOurs { endEarly() }
    }

    /// Ends all workers. After an unmount each worker notices it. After a failure they must be woken.
    private func endEarly() {
        server.fileSystem.willEnd()
        let isFirst = fuse_session_exited(session) == 0
        fuse_session_exit(session)
        firstAnswer.update { if $0 == nil { $0 = false } }
        server.scheduler.dismiss()
        if isFirst { (try? BackgroundThread { [server] in server.wakeUntilEnded() })?.detach() }
    }

    /// Unmounts, for SIGTERM. First the kernel writes dirty mapped pages back. Programs with open files get ENOTCONN
    /// afterwards. Locks must have ended, and must not begin any more.
    package func requestUnmount() {
        hasEnded.withLock { hasEnded in
            if hasEnded { return }
            server.fileSystem.willEnd()
            // Do not use syncfs(2), which would start the writing without waiting for it (seen on kernel 6.18).
            _ = dropInodes(server.fileSystem.openInodes())
            endNotifications()
            fuse_session_exit(session)
        }
        server.wakeUntilEnded()
    }

    private func endNotifications() {
        server.unlinked.end()
        server.unwritten.end()
    }

    /// False once the file system is unmounted everywhere. Call it only before `whenUnmounted` of `run` returns.
    package var isConnected: Bool {
        var device = pollfd(fd: fuse_session_fd(session), events: 0, revents: 0)
        return poll(&device, 1, 0) >= 0 && device.revents & Int16(POLLERR) == 0
    }

    /// The start of the oldest current request, in nanoseconds of CLOCK_MONOTONIC. Nil without requests.
    package var oldestRequest: Int? { server.oldestRequest }

    package var statistics: RequestStatistics {
        RequestStatistics(served: server.requests.total, clientsFollowed: server.scheduler.followed.total)
    }
}
