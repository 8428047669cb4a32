internal import Glibc
internal import Locking
internal import Synchronization

/// Has a lock controller told when lock files come or go. A watch that has failed locks, and is made anew at the next unlock. Any
/// thread.
final class LockWatch: Sendable {
    private let files: [LockFile]
    private let controller: LockController
    private let watch = Mutex<LockFileWatch?>(nil)
    private let hasFailed = Atomic<Bool>(true)

    init(_ files: [LockFile], _ controller: LockController) {
        self.files = files
        self.controller = controller
        renew()
    }

    /// After an unlock, which may have taken other directories for those of the lock files.
    func renew() {
        guard hasFailed.exchange(false, ordering: .sequentiallyConsistent) else {
            refresh()
            return
        }
        do throws(LockFileError) {
            let fresh = try LockFileWatch(files: files) { [self] report in take(report) }
            try fresh.start()
            watch.withLock { swap(&$0, fresh) }?.stop()
        } catch {
            fail("\(error)")
        }
    }

    /// A lock file was seen by others, who look more often: that it goes is told even where its coming was not.
    func refresh() {
        watch.withLock { $0 }?.refresh()
    }

    func stop() {
        watch.withLock { swap(&$0, nil) }?.stop()
    }

    private func take(_ report: LockFileWatch.Report) {
        switch report {
        case .looked: controller.poke()
        case .failed(let errno): fail("\(errno)")
        }
    }

    private func fail(_ reason: String) {
        hasFailed.store(true, ordering: .sequentiallyConsistent)
        controller.watchFailed(reason)
    }

    private func swap(_ old: inout LockFileWatch?, _ new: LockFileWatch?) -> LockFileWatch? {
        defer { old = new }
        return old
    }
}
