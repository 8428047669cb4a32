internal import Glibc
internal import LinuxSystem
internal import Synchronization
package import SystemPackage

/// Reports when lock files appear or disappear, and informs `LockFiles` when requests need not check them. Its thread
/// checks all of them after each change on the path of one, and sleeps otherwise. If inotify(7) does not report every
/// change, it checks them every 50 ms. Any thread.
package final class LockFileWatch: Sendable {
    package enum Report: Equatable, Sendable {
        /// The state of each file, in their order.
        case checked([LockFileState])
        /// The watch has ended. The receiver must treat the files as present, and may start a new watch.
        case failed(Errno)
    }

    fileprivate let files: LockFiles
    fileprivate let onChange: @Sendable (Report) -> Void
    fileprivate let system: WatchSystem
    /// Readable if there is a request for the thread.
    fileprivate let waker: Waker
    fileprivate let isStopping = Atomic(false)
    fileprivate let isRefreshing = Atomic(false)
    private let thread = Mutex<BackgroundThread?>(nil)

    /// Starts the thread, which ends at `stop`.
    /// - Parameter onChange: called on the watch's thread, first with the state at the start, then at each change. The
    ///   watch checks nothing until it returns. It must not call `stop`.
    /// - Throws: the error of eventfd(2) or pthread_create(3).
    package convenience init(files: LockFiles, onChange: @escaping @Sendable (Report) -> Void) throws(LockFileError) {
        try self.init(files: files, system: WatchSystem(), onChange: onChange)
    }

    init(files: LockFiles, system: WatchSystem, onChange: @escaping @Sendable (Report) -> Void) throws(LockFileError) {
        (self.files, self.system, self.onChange) = (files, system, onChange)
        do throws(StoreError) {
            waker = try Waker()
            let started = try BackgroundThread(blocksSignals: true) { [self] in
                var loop = WatchLoop(self)
                loop.run()
            }
            thread.withLock { $0 = started }
        } catch {
            throw LockFileError("cannot start watching the lock files: \(error.errno)")
        }
    }

    /// Makes the thread check and report, even without a change. Call it also after `LockFile.rearm`.
    package func refresh() {
        isRefreshing.store(true, ordering: .releasing)
        waker.wake()
    }

    /// Ends the thread and waits for it. This also ends the reports.
    package func stop() {
        isStopping.store(true, ordering: .releasing)
        waker.wake()
        thread.withLock { $0.take() }?.join()
    }
}

/// The kernel's interfaces used by a watch. Tests omit some.
struct WatchSystem: Sendable {
    /// Reports each change of the mount table to poll(2): proc_pid_mountinfo(5).
    var mountTable = "/proc/self/mountinfo"
    /// Calls poll(2). The timeout is in milliseconds, −1 for none.
    var poll: @Sendable (_ descriptors: inout [pollfd], _ timeout: Int32) -> Int32 = { descriptors, timeout in
        Glibc.poll(&descriptors, nfds_t(descriptors.count), timeout)
    }
}

/// The loop of a watch's thread. One thread.
private struct WatchLoop {
    private enum Ending: Error {
        case stopped
        case failed(Errno)
    }

    private typealias Effect = DirectoryWatches.Effect

    /// The time between two checks if some changes give no event.
    private static let intervalMilliseconds: Int32 = 50

    private let watch: LockFileWatch
    private var directories: DirectoryWatches?
    /// Reports mounts, because a mount over a directory gives no inotify event. Nil if unavailable.
    private let mountTable: Descriptor?
    /// True if every change gives an event.
    private var isComplete = false
    private var reported: [LockFileState]?

    init(_ watch: LockFileWatch) {
        self.watch = watch
        directories = watch.files.inotify.map { DirectoryWatches($0, to: watch.files.all.map(\.path)) }
        mountTable = try? Descriptor(owning: retrying { open(watch.system.mountTable, O_RDONLY | O_CLOEXEC) })
    }

    /// Runs until `stop`, or until waiting for events fails, which it reports.
    mutating func run() {
        arm(reportsAnyway: true)
        do throws(Ending) {
            while true {
                watch.files.setQuiet(isComplete && reported?.contains(where: \.isLocked) == false)
                try step()
            }
        } catch .failed(let errno) {
            watch.onChange(.failed(errno))
        } catch {}
    }

    private mutating func step() throws(Ending) {
        let (awaited, isRefreshing) = try awaitEffect()
        let effect = isComplete ? awaited : max(awaited, .check)
        guard effect > .nothing else { return }
        // Check first, because others wait for the report.
        let isChanged = check(reportsAnyway: false)
        guard effect == .arm || (isChanged && !isComplete) else { return }
        arm(reportsAnyway: isRefreshing)
    }

    /// Sets the watches, then checks the files, because one may have changed before.
    private mutating func arm(reportsAnyway: Bool) {
        isComplete = (directories?.arm() ?? false) && mountTable != nil
        check(reportsAnyway: reportsAnyway)
    }

    /// - Returns: true if the states differ from those of the last report.
    @discardableResult
    private mutating func check(reportsAnyway: Bool) -> Bool {
        let states = watch.files.all.map { $0.check() }
        let isChanged = states != reported
        if isChanged || reportsAnyway {
            reported = states
            watch.onChange(.checked(states))
        }
        return isChanged
    }

    /// Sleeps until something happens, and ends the quiet.
    private mutating func awaitEffect() throws(Ending) -> (Effect, isRefreshing: Bool) {
        // poll(2) ignores negative descriptors.
        var descriptors = [
            pollfd(fd: watch.waker.fd, events: Int16(POLLIN), revents: 0),
            pollfd(fd: mountTable?.fd ?? -1, events: Int16(POLLPRI), revents: 0),
            pollfd(fd: directories?.fd ?? -1, events: Int16(POLLIN), revents: 0),
        ]
        let ready = watch.system.poll(&descriptors, isComplete ? -1 : Self.intervalMilliseconds)
        watch.files.setQuiet(false)
        guard ready >= 0 else {
            guard errno == EINTR || errno == EAGAIN else { throw .failed(Errno(rawValue: errno)) }
            return (.nothing, false)
        }
        guard !descriptors.contains(where: { $0.revents & Int16(POLLNVAL) != 0 }) else {
            throw .failed(.badFileDescriptor)
        }

        var effect = descriptors[1].revents == 0 ? Effect.nothing : .arm
        if descriptors[2].revents != 0 { effect = max(effect, readEvents()) }
        guard descriptors[0].revents != 0 else { return (effect, false) }
        watch.waker.clear()
        guard !watch.isStopping.load(ordering: .acquiring) else { throw .stopped }
        let isRefreshing = watch.isRefreshing.exchange(false, ordering: .acquiring)
        return (isRefreshing ? .arm : effect, isRefreshing)
    }

    private mutating func readEvents() -> Effect {
        do throws(StoreError) {
            return try directories?.readEvents() ?? .nothing
        } catch {
            // From now on, check at intervals.
            directories = nil
            return .arm
        }
    }
}
