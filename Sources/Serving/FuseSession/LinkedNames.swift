internal import Synchronization

/// The directories in which the kernel may not have linked the names of one worker's replies yet. Any thread.
///
/// The kernel links a name, and stores its attributes for the lifetime in the reply, on the requesting thread. This
/// thread may get a processor only long after the reply, so a lock that drops names must first wait for it. From its
/// request until the name is linked, the thread holds the lock of the directory (lookup_slow and lookup_open in
/// fs/namei.c, iterate_dir in fs/readdir.c), and a notification about a name in the directory waits for that lock
/// (fuse_reverse_inval_entry in fs/fuse/dir.c).
///
/// A thread has one such request at a time, so it has linked all names of its earlier ones. The last directory of each
/// thread is enough, and a program that lists a whole tree leaves one directory here.
final class LinkedNames: Sendable {
    private struct Reply {
        /// The thread id. 0 for every thread outside of the daemon's process namespace.
        var thread: UInt32 = 0
        /// The node id. 0 without a reply.
        var directory: UInt64 = 0
    }

    private static let capacity: UInt32 = 64

    private let replies = Mutex([Reply](repeating: Reply(), count: Int(capacity)))
    /// Receives the directories that make room for others.
    private let displaced: DueNotifications

    init(displaced: DueNotifications) { self.displaced = displaced }

    /// Adds a directory. Call it inside the gate, before the reply, so that a lock that waits for the request finds it.
    func add(_ directory: UInt64, thread: UInt32) {
        let before = replies.withLock { replies in
            let index = Int(thread % Self.capacity)
            defer { replies[index] = Reply(thread: thread, directory: directory) }
            return replies[index]
        }
        let isSettled = before.thread == thread && thread != 0
        if before.directory != 0, before.directory != directory, !isSettled { displaced.add(before.directory) }
    }

    /// The directories of the last replies, unordered.
    var directories: [UInt64] { replies.withLock { $0.map(\.directory).filter { $0 != 0 } } }
}

/// The lifetimes in replies, after which the kernel asks again. Every lifetime comes from here, so a lock knows all
/// replies that have one.
struct ReplyLifetimes: Sendable {
    private let seconds: Double

    init(seconds: Double) { self.seconds = seconds }

    /// Returns the lifetime of names, and of their attributes, which the kernel links in a directory.
    /// - Parameters:
    ///   - thread: the id of the requesting thread.
    ///   - linkedNames: those of the calling worker.
    func ofNames(in directory: UInt64, thread: UInt32, _ linkedNames: LinkedNames) -> Double {
        linkedNames.add(directory, thread: thread)
        return seconds
    }

    /// The lifetime of the attributes in a reply to GETATTR. The kernel ignores them if a lock has dropped the inode
    /// since the request (`attr_version` in fuse_change_attributes, fs/fuse/inode.c).
    var ofFetchedAttributes: Double { seconds }

    /// The lifetime of attributes that the kernel stores even after such a lock: those in a reply to SETATTR
    /// (fuse_do_setattr in fs/fuse/dir.c), and of an object found by its file handle (fuse_get_dentry in
    /// fs/fuse/inode.c). The kernel holds no lock meanwhile, so a lock of the mount could not wait for it.
    var ofUnordered: Double { 0 }
}
