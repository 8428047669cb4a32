internal import Glibc
internal import LinuxSystem

/// The listening socket of a mount, under its name in a run-time directory. Any thread.
final class ControlSocket: Sendable {
    let listener: Descriptor
    private let directory: RuntimeDirectory
    private let name: Component
    private let inode: ino_t
    /// Reports that the name may have been removed, also with the directory. Nil if unavailable.
    let watch: EntryWatch?

    /// Makes the socket under a temporary name and renames it once it listens, over a dead daemon's socket. So a socket
    /// that refuses connections always belongs to a dead daemon.
    /// - Throws: `system`.
    init(_ name: Component, in directory: RuntimeDirectory) throws(ControlError) {
        self.directory = directory
        self.name = name
        let parent = directory.descriptor
        do throws(StoreError) {
            let temporary = try name + Component(Array(".\(getpid())".utf8))
            listener = try .streamSocket(isBlocking: false)
            parent.removeQuietly(temporary)
            defer { parent.removeQuietly(temporary) }
            try listener.call(bind, temporary, in: parent)
            try retrying { [listener] in listen(listener.fd, 16) }
            inode = try parent.status(of: temporary).st_ino
            try parent.rename(temporary, to: parent, as: name)
        } catch {
            throw .system(error.errno, "cannot make the control socket in", directory.path)
        }
        let changes = IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF
        watch = try? EntryWatch(name, in: parent, changes: changes)
    }

    /// True if clients find no socket under the name. Another daemon's counts, because it then has the mountpoint.
    var isMissing: Bool {
        let now = try? RuntimeDirectory(existing: directory.path, user: geteuid())
        return now?.inode(of: name) == nil
    }

    /// Removes the name, and makes the listener refuse clients.
    func remove() {
        directory.remove(name, inode: inode)
        shutdown(listener.fd, Int32(SHUT_RDWR))
    }
}
