internal import LinuxSystem
internal import Synchronization
package import SystemPackage

/// Tells when lock files come or go: a thread that looks at all of them when something on the way to one has changed, and
/// sleeps otherwise. Where inotify(7) does not show every change, it looks every 50 ms. Any thread.
package final class LockFileWatch: Sendable {
    package enum Report: Equatable, Sendable {
        /// What a look at each file gave, in their order.
        case looked([LockFileState])
        /// The watch has ended, and sees nothing any more: hold it for locked. A new one may be started.
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
    private let waker: WatchWaker
    private let thread = Mutex<BackgroundThread?>(nil)

    /// - Parameter onChange: called on the watch's thread, first with what there is at the start, then whenever that
    ///   changes. Nothing is looked at while it runs; it must not call `stop`.
    /// - Throws: `watch`.
    package convenience init(
        files: [LockFile], onChange: @escaping @Sendable (Report) -> Void
    ) throws(LockFileError) {
        try self.init(files: files, system: WatchSystem(), onChange: onChange)
    }

    init(
        files: [LockFile], system: WatchSystem, onChange: @escaping @Sendable (Report) -> Void
    ) throws(LockFileError) {
        do throws(StoreError) { waker = try WatchWaker() } catch { throw .watch(error.errno) }
        (self.files, self.system, self.onChange) = (files, system, onChange)
    }

    deinit {
        stop()
    }

    /// Starts the thread. Once.
    /// - Throws: `watch`.
    package func start() throws(LockFileError) {
        let (files, system, waker, onChange) = (files, system, waker, onChange)
        do throws(StoreError) {
            let started = try BackgroundThread(blocksSignals: true) {
                var loop = WatchLoop(files: files, system: system, waker: waker, onChange: onChange)
                loop.run()
            }
            thread.withLock { $0 = started }
        } catch {
            throw .watch(error.errno)
        }
    }

    /// Has the thread look, and report in any case. After a `LockFile.rearm()`, too.
    package func refresh() {
        waker.refresh()
    }

    /// Ends the thread and waits for it. No report comes after that.
    package func stop() {
        waker.stop()
        thread.withLock { $0.take() }?.join()
    }
}
