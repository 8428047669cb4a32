import LinuxSystem
import TestSupport

@testable import Locking

/// Reports of a watch, and the times at which it slept.
private struct WatchLog {
    var reports: [LockFileWatch.Report] = []
    /// The timeouts of the watch's sleeps, in milliseconds.
    var sleeps: [Int32] = []
    /// True if the watch has gone to sleep after the last report.
    var isAsleep = false
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
    private let log = Monitor(WatchLog())

    init(
        _ names: [String] = ["device.lock"], in place: Place? = nil, hasInotify: Bool = true,
        system: WatchSystem = .quiet
    ) throws {
        let place = try place ?? Place()
        self.place = place
        files = LockFiles(try names.map { try place.file($0) }, hasInotify: hasInotify)
        var noting = system
        noting.poll = { [log] descriptors, timeout in
            log.update {
                $0.sleeps.append(timeout)
                $0.isAsleep = true
            }
            return system.poll(&descriptors, timeout)
        }
        watch = try LockFileWatch(files: files, system: noting) { [log] report in
            log.update {
                $0.reports.append(report)
                $0.isAsleep = false
            }
        }
    }

    deinit {
        watch.stop()
    }

    /// Waits for a report of these sightings.
    func expect(_ states: LockFileState...) throws { try expect(.checked(states)) }

    func expect(_ report: LockFileWatch.Report) throws {
        try wait(for: "\(report)") { $0.reports.last == report }
    }

    /// Makes the lock file, and waits for the report.
    func expectLock() throws {
        try place.create(place.lock)
        try expect(.present)
    }

    private func wait(for what: String, _ isReached: (WatchLog) -> Bool) throws {
        if log.wait(until: .now + .seconds(10), for: { isReached($0) ? () : nil }) != nil { return }
        let reports = log.access { $0.reports }
        throw TestFailure("waited in vain for \(what); reports: \(reports.suffix(5)), \(reports.count) in all")
    }

    /// Makes the watch check and report, waits until it sleeps again, and returns the timeout of that sleep.
    func nextTimeout() throws -> Int32 {
        let count = reportCount
        watch.refresh()
        try wait(for: "sleep") { $0.reports.count > count && $0.isAsleep }
        return log.access { $0.sleeps.last ?? 0 }
    }

    /// Keeps the watch from reporting, and so from going on, until `body` has ended.
    func holdingReports(_ body: () throws -> Void) throws { try log.access { (_) throws in try body() } }

    var reportCount: Int { log.access { $0.reports.count } }
    var sleepCount: Int { log.access { $0.sleeps.count } }
}
