internal import Glibc
internal import LinuxSystem

/// The listening socket of a mount, under its name in a run-time directory. Any thread.
final class ControlSocket: Sendable {
    let listener: Descriptor
    private let directory: RuntimeDirectory
    private let name: Component
    private let inode: ino_t
    /// Reports removed entries, and a moved directory (inotify(7)). Nil if unavailable.
    private let watch: Descriptor?

    /// Makes the socket under a temporary name and renames it once it listens, over a dead daemon's socket. So a socket
    /// that refuses connections always belongs to a dead daemon.
    init(_ name: Component, in directory: RuntimeDirectory) throws(StoreError) {
        self.directory = directory
        self.name = name
        listener = try .streamSocket(isBlocking: false)
        let parent = directory.descriptor
        let temporary = try name + Component(Array(".\(getpid())".utf8))
        parent.removeQuietly(temporary)
        try listener.call(bind, temporary, in: parent)
        do throws(StoreError) {
            try retrying { [listener] in listen(listener.fd, 16) }
            inode = try parent.status(of: temporary).st_ino
            try parent.rename(temporary, to: parent, as: name)
        } catch {
            parent.removeQuietly(temporary)
            throw error
        }
        watch = try? Self.watch(parent)
    }

    private static func watch(_ directory: Descriptor) throws(StoreError) -> Descriptor {
        let watch = Descriptor(owning: try retrying { inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC)) })
        let mask = UInt32(IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)
        try retrying { inotify_add_watch(watch.fd, "/proc/self/fd/\(directory.fd)", mask) }
        return watch
    }

    /// Readable when the name may have been removed. −1 without a watch.
    var watchDescriptor: Int32 { watch?.fd ?? -1 }

    /// Reads the watch's events.
    func clearEvents() {
        guard let watch else { return }
        withUnsafeTemporaryAllocation(byteCount: 4096, alignment: 8) { buffer in
            while read(watch.fd, buffer.baseAddress, buffer.count) > 0 {}
        }
    }

    /// True if clients find no socket under the name. Another daemon's counts, because it then has the mountpoint.
    var isMissing: Bool {
        let now = try? RuntimeDirectory(existing: directory.path, user: geteuid())
        return now?.inode(of: name) == nil
    }

    /// Removes the name.
    func remove() { directory.remove(name, inode: inode) }
}
