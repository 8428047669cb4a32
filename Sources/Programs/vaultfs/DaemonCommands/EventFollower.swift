internal import Control
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// Prints the events of all the user's mounts, also of later ones. The kernel reports each change of the mount table
/// (proc_pid_mountinfo(5)), and a thread reads the events of each mount in it.
struct EventFollower {
    /// Time, in milliseconds, between two tries to reach a daemon that may just be starting.
    private static let retryInterval: Int32 = 50
    /// The number of these tries. The command then ignores a mount without a daemon.
    private static let maximumRetries = 100

    let output: EventOutput
    /// The mounts whose events are being read.
    private let followed = Monitor(Set<Key>())

    /// A mountpoint and the mount on it. A mount's device is unique while it exists.
    private struct Key: Hashable {
        let mountpoint: [UInt8]
        let device: dev_t?

        init(_ entry: MountTable.Entry) { (mountpoint, device) = (entry.mountpoint, entry.device) }
    }

    init(output: EventOutput) { self.output = output }

    /// Follows all mounts, and returns when the output has no reader left.
    func run() throws {
        let table = try CommandFailure.wrapping(
            "cannot open", "/proc/self/mountinfo", try Descriptor(path: "/proc/self/mountinfo", flags: O_RDONLY))
        // Number of tries for each mount not reached yet.
        var tries: [Key: Int] = [:]
        var isFirst = true
        while true {
            let mounts = try MountTable.read().mountsOfThisUser.filter { entry in
                !followed.access { $0.contains(Key(entry)) }
            }
            let keys = Set(mounts.map(Key.init))
            tries = tries.filter { keys.contains($0.key) }
            for entry in mounts {
                let key = Key(entry)
                if tries[key, default: 0] > Self.maximumRetries { continue }
                tries[key, default: 0] += 1
                if follow(entry, isNew: !isFirst) { tries[key] = nil }
            }
            isFirst = false
            let isWaiting = tries.values.contains { $0 <= Self.maximumRetries }
            guard wait(table, timeout: isWaiting ? Self.retryInterval : -1) else { return }
        }
    }

    /// Starts to read a mount's events. Returns false if its daemon cannot be reached.
    private func follow(_ entry: MountTable.Entry, isNew: Bool) -> Bool {
        guard let client = try? entry.connect().client else { return false }
        let key = Key(entry)
        followed.update { _ = $0.insert(key) }
        let thread = try? BackgroundThread { [output, followed] in
            do {
                if isNew { try output.write(ControlEvent(isMounted: true, mountpoint: entry.path.string)) }
                try output.follow(client, at: entry.path.string)
            } catch {
                Console.report("\(entry.path.shown): \(CommandFailure(any: error)?.message ?? "\(error)")")
            }
            followed.update { _ = $0.remove(key) }
        }
        thread?.detach()
        return thread != nil
    }

    /// Waits for a change of the mount table. Returns false when the output has no reader left.
    private func wait(_ table: Descriptor, timeout: Int32) -> Bool {
        var descriptors = [
            pollfd(fd: table.fd, events: Int16(POLLPRI), revents: 0),
            pollfd(fd: STDOUT_FILENO, events: 0, revents: 0),
        ]
        while poll(&descriptors, 2, timeout) < 0, errno == EINTR {}
        return descriptors[1].revents & Int16(POLLERR | POLLHUP) == 0
    }
}
