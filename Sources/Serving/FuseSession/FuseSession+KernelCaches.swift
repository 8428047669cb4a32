internal import CFuse
package import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage

/// Makes the kernel drop its copies of a session's plaintext, by notifications on the session's descriptor.
extension FuseSession: KernelCaches {
    /// The number of inodes above which two threads drop them, and the most that one notification frees.
    private static let share = 2000

    /// Sends FUSE_NOTIFY_INC_EPOCH, after which the kernel looks up every earlier name again before it uses it. Returns
    /// errno.
    static func startEpoch(_ session: OpaquePointer) -> Int32 { notify(session, code: 8, []) }

    /// Sends FUSE_NOTIFY_PRUNE, by which the kernel drops each inode's names, and an unused inode itself. Returns
    /// errno.
    static func free(_ inodes: ArraySlice<UInt64>, _ session: OpaquePointer) -> Int32 {
        // struct fuse_notify_prune_out: the count (32 bits), padding (32 bits) and a spare field (64 bits).
        notify(session, code: 9, [UInt64(inodes.count), 0] + inodes)
    }

    /// Sends a notification of the kernel's <linux/fuse.h> unknown to libfuse 3.14. Returns errno.
    private static func notify(_ session: OpaquePointer, code: Int32, _ fields: [UInt64]) -> Int32 {
        // struct fuse_out_header: length and code, then `unique`, which is 0 in a notification.
        let length = (2 + fields.count) * MemoryLayout<UInt64>.size
        let message = [UInt64(length) | UInt64(UInt32(bitPattern: code)) << 32, 0] + fields.map(\.littleEndian)
        let written = message.withUnsafeBytes { write(fuse_session_fd(session), $0.baseAddress, $0.count) }
        return written == length ? 0 : errno
    }

    // MARK: Inodes

    /// Drops the inodes, many of them on two threads, because each thread waits for the kernel most of the time.
    package func dropInodes(_ inodes: [UInt64]) -> [String] {
        let failures = Mutex<[String]>([])
        let next = Atomic<Int>(0)
        let drop: @Sendable () -> Void = { [self] in
            while true {
                let index = next.add(1, ordering: .relaxed).oldValue
                guard index < inodes.count else { return }
                if let failure = dropPages(of: inodes[index]) { failures.withLock { $0.append(failure) } }
            }
        }
        let helper = inodes.count > Self.share ? try? BackgroundThread(drop) : nil
        drop()
        helper?.join()
        return failures.withLock { $0 }
    }

    /// Drops an inode's attributes and its pages in a range of bytes, all if it is empty. Returns a failure.
    func dropPages(of inode: UInt64, in range: Range<Int> = 0..<0) -> String? {
        let error = fuse_lowlevel_notify_inval_inode(session, inode, range.lowerBound, range.count)
        if Self.isDone(error) { return nil }
        return "pages of node \(String(inode, radix: 16)): \(Errno(rawValue: -error))"
    }

    /// Returns true if a notification has succeeded, or if the kernel no longer knows the object (ENOENT), or if the
    /// mount no longer exists (ENODEV).
    private static func isDone(_ result: Int32) -> Bool { [0, -ENOENT, -ENODEV].contains(result) }

    package func dropUnwritten() -> [String] { server.unwritten.all.compactMap { dropPages(of: $0.key, in: $0.value) } }

    package func freeInodes(_ inodes: [UInt64]) -> [String] {
        guard freesInodes else { return [] }
        return stride(from: 0, to: inodes.count, by: Self.share).compactMap { start in
            let error = Self.free(inodes[start..<min(start + Self.share, inodes.count)], session)
            // ENOENT: the kernel does not know an inode yet, as the reply to its lookup was sent just before the lock.
            // ENODEV: the mount no longer exists.
            if [0, ENOENT, ENODEV].contains(error) { return nil }
            return "names and attributes of closed files: \(Errno(rawValue: error))"
        }
    }

    // MARK: Names

    /// Longer than any name of a file, so the kernel cannot have it.
    private static let absentName = [UInt8](repeating: UInt8(ascii: "x"), count: 256)

    /// Waits until the threads that link names in the directory, or wait for a reply about one, have left it.
    func awaitLinkedNames(in directory: UInt64) {
        _ = invalidate(KnownName(parent: directory, name: Self.absentName))
    }

    package func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) {
        // Decrypt the names before a wait that may outlast the keys.
        let names = knowsEpochs && freesInodes ? [] : names()
        for directory in server.unlinkedDirectories { awaitLinkedNames(in: directory) }
        if knowsEpochs {
            let error = Self.startEpoch(session)
            guard Self.isDone(-error) else { return ("epoch", ["names: \(Errno(rawValue: error))"]) }
            return ("epoch", dropEach(names.filter { !$0.mayBeInUse }, expiring: false).failures)
        }
        let (isExpired, failures) = dropEach(names, expiring: newest >= .expiring)
        return (isExpired ? "expired" : "invalidated", failures)
    }

    /// Drops names one by one. A name is expired or invalidated. The kernel removes an invalidated name from its tree,
    /// and frees an unused inode. An inode in use, such as a program's working directory, stays outside of the tree
    /// until it is looked up again.
    /// - Parameter expiring: true to expire names that may be in use, if the kernel can do this.
    private func dropEach(_ names: [KnownName], expiring: Bool) -> (isExpired: Bool, failures: [String]) {
        var failures: [String] = []
        var isExpired = expiring
        for name in names {
            var result = isExpired && name.mayBeInUse ? expire(name) : invalidate(name)
            if result == -ENOSYS && isExpired {
                isExpired = false
                result = invalidate(name)
            }
            if Self.isDone(result) || result == -ENOTDIR { continue }
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
        // Use a thread of its own, because the file system above the mountpoint may not answer.
        return withinTime(milliseconds: 1000) {
            for path in paths where goesOn() && !isGivenUp.load(ordering: .sequentiallyConsistent) {
                var status = stat()
                withCString(mountpoint + path) { _ = lstat($0, &status) }
            }
            return goesOn()
        } ?? false
    }

    package func wipeWorkers(waitingForAll: Bool) -> [String] { server.wipeWorkers(waitingForAll: waitingForAll) }

    package func awaitWipedWorkers(until deadline: ContinuousClock.Instant) -> Int {
        server.awaitWipedWorkers(until: deadline)
    }
}
