internal import Glibc
internal import SystemPackage

/// What the watch's thread does. One thread.
struct WatchLoop: ~Copyable {
    private enum Ending: Error {
        case stopped
        case failed(Errno)
    }

    private typealias Effect = DirectoryWatches.Effect

    /// Between two looks where not all changes give an event.
    private static let intervalMilliseconds: Int32 = 50

    private let files: [LockFile]
    private let system: WatchSystem
    private let waker: WatchWaker
    private let onChange: @Sendable (LockFileWatch.Report) -> Void

    private var watches: DirectoryWatches?
    /// poll(2) notes each change of the mount table on it; -1 where there is none. A mount over a directory gives no
    /// inotify event.
    private let mountTable: Int32
    /// Whether all changes give an event.
    private var isComplete = false
    private var reported: [LockFileState]?

    init(
        files: [LockFile], system: WatchSystem, waker: WatchWaker,
        onChange: @escaping @Sendable (LockFileWatch.Report) -> Void
    ) {
        (self.files, self.system, self.waker, self.onChange) = (files, system, waker, onChange)
        watches = system.hasInotify ? DirectoryWatches(to: files.map(\.path)) : nil
        mountTable = open(system.mountTable, O_RDONLY | O_CLOEXEC)
    }

    deinit {
        if mountTable >= 0 { close(mountTable) }
    }

    /// Returns after WatchWaker.stop(), or when it can no longer wait for events, which it reports.
    mutating func run() {
        arm()
        do throws(Ending) {
            look(reportsAnyway: true)
            while true { try step() }
        } catch .failed(let errno) {
            onChange(.failed(errno))
        } catch {}
    }

    private mutating func step() throws(Ending) {
        let (awaited, isRefreshing) = try awaitEffect()
        let effect = isComplete ? awaited : max(awaited, .look)
        guard effect > .nothing else { return }
        // First, since it is what others wait for.
        let isChanged = look(reportsAnyway: false)
        guard effect == .arm || (isChanged && !isComplete) else { return }
        arm()
        look(reportsAnyway: isRefreshing)
    }

    private mutating func arm() {
        isComplete = (watches?.arm() ?? false) && mountTable >= 0
    }

    /// - Returns: whether it is another answer than the one reported last.
    @discardableResult
    private mutating func look(reportsAnyway: Bool) -> Bool {
        let states = files.map { $0.look() }
        let isChanged = states != reported
        if isChanged || reportsAnyway {
            reported = states
            onChange(.looked(states))
        }
        return isChanged
    }

    /// Sleeps until something happens.
    private mutating func awaitEffect() throws(Ending) -> (Effect, isRefreshing: Bool) {
        // poll(2) passes over negative descriptors.
        var descriptors = [
            pollfd(fd: waker.fd, events: Int16(POLLIN), revents: 0),
            pollfd(fd: mountTable, events: Int16(POLLPRI), revents: 0),
            pollfd(fd: watches?.fd ?? -1, events: Int16(POLLIN), revents: 0),
        ]
        guard system.poll(&descriptors, isComplete ? -1 : Self.intervalMilliseconds) >= 0 else {
            guard errno == EINTR || errno == EAGAIN else { throw .failed(Errno(rawValue: errno)) }
            return (.nothing, false)
        }
        guard !descriptors.contains(where: { $0.revents & Int16(POLLNVAL) != 0 }) else {
            throw .failed(.badFileDescriptor)
        }

        var effect = descriptors[1].revents == 0 ? Effect.nothing : .arm
        if descriptors[2].revents != 0 { effect = max(effect, takeEvents()) }
        guard descriptors[0].revents != 0 else { return (effect, false) }
        let asked = waker.take()
        guard !asked.isStopping else { throw .stopped }
        return (asked.isRefreshing ? .arm : effect, asked.isRefreshing)
    }

    private mutating func takeEvents() -> Effect {
        do throws(Errno) {
            return try watches?.takeEvents() ?? .nothing
        } catch {
            // Look by the clock from now on.
            watches = nil
            return .arm
        }
    }
}
