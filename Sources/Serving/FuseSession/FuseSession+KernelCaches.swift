internal import CFuse
package import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Makes the kernel drop its copies of a session's plaintext, by notifications on the session's descriptor.
extension FuseSession: KernelCaches {
    /// Number of inodes above which two threads drop them. Also the most that one notification frees.
    private static let share = 2000

    /// Sends FUSE_NOTIFY_INC_EPOCH. The kernel then looks up every earlier name again before it uses it. Returns
    /// errno.
    static func startEpoch(_ session: OpaquePointer) -> Int32 { notify(session, code: 8, []) }

    /// Sends FUSE_NOTIFY_PRUNE. The kernel drops each inode's names, and the inode itself if nobody uses it. Returns
    /// errno.
    static func free(_ inodes: ArraySlice<UInt64>, _ session: OpaquePointer) -> Int32 {
        // struct fuse_notify_prune_out: the count (32 bits), padding (32 bits) and a spare field (64 bits).
        notify(session, code: 9, [UInt64(inodes.count), 0] + inodes)
    }

    /// Sends a notification of the kernel's <linux/fuse.h> that libfuse 3.14 does not know. Returns errno.
    private static func notify(_ session: OpaquePointer, code: Int32, _ fields: [UInt64]) -> Int32 {
        // struct fuse_out_header: length and code, then `unique`, which is 0 in a notification.
        let length = (2 + fields.count) * MemoryLayout<UInt64>.size
        let message = [UInt64(length) | UInt64(UInt32(bitPattern: code)) << 32, 0] + fields.map(\.littleEndian)
        let written = message.withUnsafeBytes { write(fuse_session_fd(session), $0.baseAddress, $0.count) }
        return written == length ? 0 : errno
    }

    // MARK: Inodes

    /// Two threads drop a large number of inodes, because each waits for the kernel most of the time.
    package func dropInodes(_ inodes: [UInt64]) -> [String] {
        let (failures, unknown) = dropOnce(inodes)
        if unknown.isEmpty { return failures }
        // The reply to a lookup may have been sent just before the lock, and the kernel not have processed it yet.
        usleep(2000)
        return failures + dropOnce(unknown).failures
    }

    private func dropOnce(_ inodes: [UInt64]) -> (failures: [String], unknown: [UInt64]) {
        let results = Mutex<(failures: [String], unknown: [UInt64])>(([], []))
        let next = Atomic<Int>(0)
        let drop: @Sendable () -> Void = { [self] in
            while true {
                let index = next.add(1, ordering: .relaxed).oldValue
                guard index < inodes.count else { return }
                let inode = inodes[index]
                let error = -fuse_lowlevel_notify_inval_inode(session, inode, 0, 0)
                switch error {
                // ENODEV: the mount no longer exists.
                case 0, ENODEV: break
                // The kernel has forgotten the inode and its pages.
                case ENOENT: results.withLock { $0.unknown.append(inode) }
                default:
                    let failure = "pages of node \(String(inode, radix: 16)): \(Errno(rawValue: error))"
                    results.withLock { $0.failures.append(failure) }
                }
            }
        }
        let helper = inodes.count > Self.share ? try? BackgroundThread(drop) : nil
        drop()
        helper?.join()
        return results.withLock { $0 }
    }

    package func freeInodes(_ inodes: [UInt64]) -> [String] {
        guard freesInodes else { return [] }
        return stride(from: 0, to: inodes.count, by: Self.share).compactMap { start in
            let error = Self.free(inodes[start..<min(start + Self.share, inodes.count)], session)
            // ENOENT: the kernel does not know an inode yet, because the reply to its lookup was sent just before the lock.
            // ENODEV: the mount no longer exists.
            if [0, ENOENT, ENODEV].contains(error) { return nil }
            return "names and attributes of closed files: \(Errno(rawValue: error))"
        }
    }

    // MARK: Names

    package func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) {
        if knowsEpochs {
            let error = Self.startEpoch(session)
            if error == ENODEV || error == 0 && freesInodes { return ("epoch", []) }
            if error == 0 { return ("epoch", dropEach(names().filter { !$0.mayBeInUse }, expiring: false).failures) }
        }
        let (isExpired, failures) = dropEach(names(), expiring: newest >= .expiring)
        return (isExpired ? "expired" : "invalidated", failures)
    }

    /// Drops names one by one. A name is expired or invalidated. The kernel removes an invalidated name from its tree,
    /// and frees the inode if nobody uses it. An inode in use, such as a program's working directory, stays outside the
    /// tree until somebody looks it up again.
    /// - Parameter expiring: true to expire names that may be in use, if the kernel can do that.
    private func dropEach(_ names: [KnownName], expiring: Bool) -> (isExpired: Bool, failures: [String]) {
        var failures: [String] = []
        var isExpired = expiring
        for name in names {
            var result = isExpired && name.mayBeInUse ? expire(name) : invalidate(name)
            if result == -ENOSYS && isExpired {
                isExpired = false
                result = invalidate(name)
            }
            if [0, -ENOENT, -ENODEV, -ENOTDIR].contains(result) { continue }
            failures.append("a name in node \(String(name.parent, radix: 16)): \(Errno(rawValue: -result))")
        }
        return (isExpired, failures)
    }

    private func expire(_ name: KnownName) -> Int32 {
        withCString(name.name) {
            cfuse_notify_expire_entry(session, name.parent, $0, name.name.count)
        }
    }

    private func invalidate(_ name: KnownName) -> Int32 {
        withCString(name.name) { fuse_lowlevel_notify_inval_entry(session, name.parent, $0, name.name.count) }
    }

    package func lookUp(_ paths: [[UInt8]], while goesOn: @escaping @Sendable () -> Bool) -> Bool {
        if paths.isEmpty { return true }
        let isGivenUp = Atomic<Bool>(false)
        defer { isGivenUp.store(true, ordering: .sequentiallyConsistent) }
        let mountpoint = self.mountpoint.withPlatformString { bytes($0) }
        // On a thread of its own, because the file system above the mountpoint may not answer.
        return withinTime(milliseconds: 1000) {
            for path in paths where goesOn() && !isGivenUp.load(ordering: .sequentiallyConsistent) {
                var status = stat()
                withCString(mountpoint + path) { _ = lstat($0, &status) }
            }
            return goesOn()
        } ?? false
    }

    package func wipeWorkers(waitingForAll: Bool) -> [String] { server.wipeWorkers(waitingForAll: waitingForAll) }
}
