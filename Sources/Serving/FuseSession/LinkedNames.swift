internal import Synchronization

/// Directories in which the kernel may not have linked the names of one worker's replies yet. Any thread.
///
/// The kernel links a name, and stores its attributes for the lifetime in the reply, on the thread that asked. This
/// thread may get a processor only long after the reply, so a lock that drops names must first wait for it. From its
/// request until the name is linked it holds the lock of the directory (lookup_slow and lookup_open in fs/namei.c,
/// iterate_dir in fs/readdir.c), and a notification about a name in the directory waits for that lock
/// (fuse_reverse_inval_entry in fs/fuse/dir.c).
///
/// A thread has one such request at a time: one that asks again has linked the names before. So the last directory of
/// each thread is enough, and a program that lists a whole tree leaves one directory here.
final class LinkedNames: Sendable {
    private struct Reply {
        /// Thread id. 0 for every thread that the daemon's process namespace does not have.
        var thread: UInt32 = 0
        /// Node id. 0 if there was no reply.
        var directory: UInt64 = 0
    }

    private static let capacity: UInt32 = 64

    private let replies = Mutex([Reply](repeating: Reply(), count: Int(capacity)))
    /// Gets the directories that make room for others.
    private let displaced: DueNotifications

    init(displaced: DueNotifications) { self.displaced = displaced }

    /// Call before the reply, inside the gate: a lock that has waited for the request finds the directory.
    func add(_ directory: UInt64, thread: UInt32) {
        let before = replies.withLock { replies in
            let index = Int(thread % Self.capacity)
            defer { replies[index] = Reply(thread: thread, directory: directory) }
            return replies[index]
        }
        let isSettled = before.thread == thread && thread != 0
        if before.directory != 0, before.directory != directory, !isSettled { displaced.add(before.directory) }
    }

    /// The directories of the last replies, in no order.
    var directories: [UInt64] { replies.withLock { $0.map(\.directory).filter { $0 != 0 } } }
}

/// The lifetimes in replies, after which the kernel asks again. The only source of them, so a lock knows each reply
/// that has one.
struct ReplyLifetimes: Sendable {
    private let seconds: Double

    init(seconds: Double) { self.seconds = seconds }

    /// Lifetime of names, and of their attributes, which the kernel links in a directory.
    /// - Parameters:
    ///   - thread: id of the thread that has asked.
    ///   - linkedNames: those of the calling worker.
    func ofNames(in directory: UInt64, thread: UInt32, _ linkedNames: LinkedNames) -> Double {
        linkedNames.add(directory, thread: thread)
        return seconds
    }

    /// Lifetime of the attributes in a reply to GETATTR. The kernel ignores them if the lock has dropped the inode
    /// since the request (`attr_version` in fuse_change_attributes, fs/fuse/inode.c).
    var ofFetchedAttributes: Double { seconds }

    /// Lifetime of the attributes in a reply to SETATTR, which the kernel stores even then (fuse_do_setattr in
    /// fs/fuse/dir.c), and of an object found without a name, by its file handle (fuse_get_dentry in fs/fuse/inode.c).
    /// No lock is held for it.
    var ofUnordered: Double { 0 }
}
