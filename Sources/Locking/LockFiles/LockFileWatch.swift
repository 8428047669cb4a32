internal import Glibc
internal import LinuxSystem
internal import Synchronization
package import SystemPackage

/// Reports when lock files appear or disappear. Its thread looks at all of them if something on the way to one has
/// changed, and sleeps otherwise. If inotify(7) does not report every change, it looks every 50 ms. Any thread.
package final class LockFileWatch: Sendable {
    package enum Report: Equatable, Sendable {
        /// The state of each file, in their order.
        case looked([LockFileState])
        /// The watch has ended. Treat the files as present. A new watch may be started.
        case failed(Errno)

        package var isLocked: Bool {
            switch self {
            case .looked(let states): states.contains(where: \.isLocked)
            case .failed: true
            }
        }
    }

    private let files: [LockFile]
    private let onChange: @Sendable (Report) -> Void
    private let system: WatchSystem
    private let requests: WatchRequests
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Parameter onChange: called on the watch's thread, first with the state at the start, then at each change. The
    ///   watch looks at nothing while it runs. It must not call `stop`.
    /// - Throws: `watch`.
    package convenience init(
        files: [LockFile], onChange: @escaping @Sendable (Report) -> Void
    ) throws(LockFileError) {
        try self.init(files: files, system: WatchSystem(), onChange: onChange)
    }

    init(
        files: [LockFile], system: WatchSystem, onChange: @escaping @Sendable (Report) -> Void
    ) throws(LockFileError) {
        do throws(StoreError) { requests = try WatchRequests() } catch { throw .watch(error.errno) }
        (self.files, self.system, self.onChange) = (files, system, onChange)
    }

    deinit {
        stop()
    }

    /// Starts the thread. Once.
    /// - Throws: `watch`.
    package func start() throws(LockFileError) {
        let (files, system, requests, onChange) = (files, system, requests, onChange)
        do throws(StoreError) {
            let started = try BackgroundThread(blocksSignals: true) {
                var loop = WatchLoop(files: files, system: system, requests: requests, onChange: onChange)
                loop.run()
            }
            thread.withLock { $0 = started }
        } catch {
            throw .watch(error.errno)
        }
    }

    /// Makes the thread look and report, even if nothing has changed. Call it also after `LockFile.rearm`.
    package func refresh() {
        requests.refresh()
    }

    /// Ends the thread and waits for it. No report comes after that.
    package func stop() {
        requests.stop()
        thread.withLock { $0.take() }?.join()
    }
}

/// The kernel's interfaces that a watch uses. Tests leave some out.
struct WatchSystem: Sendable {
    var hasInotify = true
    /// Reports each change of the mount table to poll(2): proc_pid_mountinfo(5).
    var mountTable = "/proc/self/mountinfo"
    /// poll(2). The timeout is in milliseconds, −1 for none.
    var poll: @Sendable (_ descriptors: inout [pollfd], _ timeout: Int32) -> Int32 = { descriptors, timeout in
        Glibc.poll(&descriptors, nfds_t(descriptors.count), timeout)
    }
}

/// The requests to the watch's thread. Any thread.
private final class WatchRequests: Sendable {
    private let waker: Waker
    private let isStopping = Atomic(false)
    private let isRefreshing = Atomic(false)

    init() throws(StoreError) {
        waker = try Waker()
    }

    /// Readable if there are requests.
    var fd: Int32 { waker.fd }

    func refresh() {
        isRefreshing.store(true, ordering: .releasing)
        waker.wake()
    }

    func stop() {
        isStopping.store(true, ordering: .releasing)
        waker.wake()
    }

    /// Takes the requests made since the last call.
    func take() -> (isStopping: Bool, isRefreshing: Bool) {
        waker.clear()
        return (isStopping.load(ordering: .acquiring), isRefreshing.exchange(false, ordering: .acquiring))
    }
}

/// The loop of a watch's thread. One thread.
private struct WatchLoop: ~Copyable {
    private enum Ending: Error {
        case stopped
        case failed(Errno)
    }

    private typealias Effect = DirectoryWatches.Effect

    /// Time between two looks if not every change gives an event.
    private static let intervalMilliseconds: Int32 = 50

    private let files: [LockFile]
    private let system: WatchSystem
    private let requests: WatchRequests
    private let onChange: @Sendable (LockFileWatch.Report) -> Void

    private var watches: DirectoryWatches?
    /// Reports mounts, because a mount over a directory gives no inotify event. −1 if unavailable.
    private let mountTable: Int32
    /// True if every change gives an event.
    private var isComplete = false
    private var reported: [LockFileState]?

    init(
        files: [LockFile], system: WatchSystem, requests: WatchRequests,
        onChange: @escaping @Sendable (LockFileWatch.Report) -> Void
    ) {
        (self.files, self.system, self.requests, self.onChange) = (files, system, requests, onChange)
        watches = system.hasInotify ? DirectoryWatches(to: files.map(\.path)) : nil
        mountTable = open(system.mountTable, O_RDONLY | O_CLOEXEC)
    }

    deinit {
        if mountTable >= 0 { close(mountTable) }
    }

    /// Runs until `stop`, or until waiting for events fails, which it reports.
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
        // First, because others wait for the report.
        let isChanged = look(reportsAnyway: false)
        guard effect == .arm || (isChanged && !isComplete) else { return }
        arm()
        look(reportsAnyway: isRefreshing)
    }

    private mutating func arm() {
        isComplete = (watches?.arm() ?? false) && mountTable >= 0
    }

    /// - Returns: true if the states differ from those of the last report.
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
        // poll(2) ignores negative descriptors.
        var descriptors = [
            pollfd(fd: requests.fd, events: Int16(POLLIN), revents: 0),
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
        let asked = requests.take()
        guard !asked.isStopping else { throw .stopped }
        return (asked.isRefreshing ? .arm : effect, asked.isRefreshing)
    }

    private mutating func takeEvents() -> Effect {
        do throws(Errno) {
            return try watches?.takeEvents() ?? .nothing
        } catch {
            // Look at intervals from now on.
            watches = nil
            return .arm
        }
    }
}
