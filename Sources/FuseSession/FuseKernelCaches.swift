internal import BackingStore
internal import CFuse
internal import CLinux
internal import Glibc
internal import MountedFileSystem
internal import Synchronization
internal import SystemPackage

/// Tells the kernel to drop what it keeps of a session's plaintext, by notifications on the session's descriptor.
final class FuseKernelCaches: @unchecked Sendable {
    // @unchecked: libfuse's session is made for many threads; the pointer is never changed.
    private let session: OpaquePointer
    private let newest: NameDropping
    /// Whether one notification reaches all names (kernels from 6.16 on).
    let knowsEpochs: Bool
    /// Inodes that one thread drops while others drop more.
    private static let share = 2000

    /// - Parameters:
    ///   - session: mounted.
    ///   - newest: what is tried at most.
    init(session: OpaquePointer, newest: NameDropping) {
        self.session = session
        self.newest = newest
        knowsEpochs = newest == .byEpoch && Self.startEpoch(session) == 0
    }

    /// FUSE_NOTIFY_INC_EPOCH of the kernel's <linux/fuse.h>, which libfuse 3.14 does not know: every name that was told
    /// before is looked up again before it is used. Returns errno.
    private static func startEpoch(_ session: OpaquePointer) -> Int32 {
        var header = NotificationHeader(length: 16, code: 8, unique: 0)
        let written = write(fuse_session_fd(session), &header, MemoryLayout.size(ofValue: header))
        return written == MemoryLayout.size(ofValue: header) ? 0 : errno
    }

    /// struct fuse_out_header of a notification.
    private struct NotificationHeader {
        var length: UInt32
        var code: Int32
        var unique: UInt64
    }

    // MARK: Inodes

    /// Drops pages and attributes. Two threads, where there is much to do: each waits for the kernel most of the time.
    func dropInodes(_ inodes: [UInt64]) -> [String] {
        let (failures, unknown) = dropOnce(inodes)
        if unknown.isEmpty { return failures }
        // The answer to a lookup may have gone out just before the lock, and who asked not yet have taken it in.
        usleep(2000)
        return failures + dropOnce(unknown).failures
    }

    private enum Outcome {
        case dropped, unknown
        case failed(String)
    }

    private func dropOnce(_ inodes: [UInt64]) -> (failures: [String], unknown: [UInt64]) {
        let results = Mutex<(failures: [String], unknown: [UInt64])>(([], []))
        let next = Atomic<Int>(0)
        let drop: @Sendable () -> Void = { [self] in
            while true {
                let index = next.add(1, ordering: .relaxed).oldValue
                guard index < inodes.count else { return }
                switch dropInode(inodes[index]) {
                case .dropped: break
                case .unknown: results.withLock { $0.unknown.append(inodes[index]) }
                case .failed(let failure): results.withLock { $0.failures.append(failure) }
                }
            }
        }
        let helper = inodes.count > Self.share ? try? BackgroundThread(drop) : nil
        drop()
        helper?.join()
        return results.withLock { $0 }
    }

    /// Has the kernel ask for an inode's attributes before it uses them. Takes no lock of the inode's, so that it may be
    /// called within a request (fuse_reverse_inval_inode in fs/fuse/inode.c, with a negative offset).
    func dropAttributes(_ inode: UInt64) {
        _ = fuse_lowlevel_notify_inval_inode(session, inode, -1, 0)
    }

    private func dropInode(_ inode: UInt64) -> Outcome {
        let result = fuse_lowlevel_notify_inval_inode(session, inode, 0, 0)
        switch result {
        // ENODEV: the mount has gone.
        case 0, -ENODEV: return .dropped
        // It has forgotten the inode, and its pages with it.
        case -ENOENT: return .unknown
        default: return .failed("pages of node \(String(inode, radix: 16)): \(Errno(rawValue: -result))")
        }
    }

    // MARK: Names

    func dropNames(_ names: () -> [KnownName]) -> (method: String, failures: [String]) {
        if knowsEpochs {
            let error = Self.startEpoch(session)
            if error == 0 || error == ENODEV { return ("epoch", []) }
        }
        var failures: [String] = []
        var method = min(newest, .expiring)
        for name in names() {
            var result = method == .expiring ? expire(name) : invalidate(name)
            if result == -ENOSYS && method == .expiring {
                // It takes the name away altogether: whoever works in the directory is outside of the tree until somebody
                // looks it up again.
                method = .invalidating
                result = invalidate(name)
            }
            if [0, -ENOENT, -ENODEV, -ENOTDIR].contains(result) { continue }
            failures.append("a name in node \(String(name.parent, radix: 16)): \(Errno(rawValue: -result))")
        }
        return (method == .expiring ? "expired" : "invalidated", failures)
    }

    private func expire(_ name: KnownName) -> Int32 {
        withCString(name.name) {
            fuse_lowlevel_notify_expire_entry(session, name.parent, $0, name.name.count, FUSE_LL_EXPIRE_ONLY)
        }
    }

    private func invalidate(_ name: KnownName) -> Int32 {
        withCString(name.name) { fuse_lowlevel_notify_inval_entry(session, name.parent, $0, name.name.count) }
    }
}
