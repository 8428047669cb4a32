import Foundation
import TestSupport

@testable import Locking

/// Reports of a watch, and the times at which it slept.
private final class WatchLog: @unchecked Sendable {
    // @unchecked: `reports` and `sleeps` are guarded by `condition`.
    let condition = NSCondition()
    var reports: [LockFileWatch.Report] = []
    /// The timeouts of the watch's sleeps, in milliseconds.
    var sleeps: [Int32] = []
    /// True if the watch has gone to sleep after the last report.
    var isAsleep = false

    func note(_ change: (WatchLog) -> Void) {
        condition.lock()
        change(self)
        condition.broadcast()
        condition.unlock()
    }

    func wait(for what: String, within timeout: TimeInterval, _ isReached: (WatchLog) -> Bool) throws {
        let deadline = Date(timeIntervalSinceNow: timeout)
        condition.lock()
        defer { condition.unlock() }
        while !isReached(self) {
            guard condition.wait(until: deadline) else {
                throw TestFailure("waited in vain for \(what); reports: \(reports.suffix(5)), \(reports.count) in all")
            }
        }
    }
}

extension WatchSystem {
    /// Ignores the mounts of other tests, which would wake a watch that has missed something.
    static let quiet = WatchSystem(mountTable: "/dev/null")
}

/// A directory with watched lock files.
final class WatchedPlace {
    let place: Place
    let files: LockFiles
    let watch: LockFileWatch
    private let log = WatchLog()

    init(
        _ names: [String] = ["device.lock"], in place: Place? = nil, hasInotify: Bool = true,
        system: WatchSystem = .quiet
    ) throws {
        let place = try place ?? Place()
        self.place = place
        files = LockFiles(try names.map { try place.file($0) }, hasInotify: hasInotify)
        var noting = system
        noting.poll = { [log] descriptors, timeout in
            log.note {
                $0.sleeps.append(timeout)
                $0.isAsleep = true
            }
            return system.poll(&descriptors, timeout)
        }
        watch = try LockFileWatch(files: files, system: noting) { [log] report in
            log.note {
                $0.reports.append(report)
                $0.isAsleep = false
            }
        }
    }

    deinit {
        watch.stop()
    }

    /// Waits for a report of these sightings.
    func expect(_ states: LockFileState..., within timeout: TimeInterval = 10) throws {
        try expect(.checked(states), within: timeout)
    }

    func expect(_ report: LockFileWatch.Report, within timeout: TimeInterval = 10) throws {
        try log.wait(for: "\(report)", within: timeout) { $0.reports.last == report }
    }

    /// Makes the watch check and report, waits until it sleeps again, and returns the timeout of that sleep.
    func nextTimeout() throws -> Int32 {
        let count = reportCount
        watch.refresh()
        try log.wait(for: "sleep", within: 10) { $0.reports.count > count && $0.isAsleep }
        return log.condition.withLock { log.sleeps.last ?? 0 }
    }

    /// Keeps the watch from reporting, and so from going on, until `body` has ended.
    func holdingReports(_ body: () throws -> Void) rethrows {
        try log.condition.withLock(body)
    }

    var reportCount: Int { log.condition.withLock { log.reports.count } }
    var sleepCount: Int { log.condition.withLock { log.sleeps.count } }
}
