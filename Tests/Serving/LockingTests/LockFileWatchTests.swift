import Foundation
import TestSupport
import Testing

@testable import Locking

@Suite(.timeLimit(.minutes(60))) struct LockFileWatchTests {
    @Test("a lock file comes and goes", arguments: [true, false])
    func aLockFileComesAndGoes(hasInotify: Bool) throws {
        let watched = try WatchedPlace(hasInotify: hasInotify)
        let place = watched.place
        try watched.expect(.absent)
        try watched.expectLock()
        try place.remove(place.lock)
        try watched.expect(.absent)
        let elsewhere = place.temporary.appending("elsewhere")
        try place.create(elsewhere)
        try place.check(link(elsewhere, place.lock), "link", place.lock)
        try watched.expect(.present)
        try place.remove(place.lock)
        try watched.expect(.absent)
        try place.move(elsewhere, place.lock)
        try watched.expect(.present)
        try place.move(place.lock, elsewhere)
        try watched.expect(.absent)
        try place.check(symlink("/nonexistent", place.lock), "symlink", place.lock)
        try watched.expect(.present)
    }

    @Test("removed and made again", arguments: [true, false])
    func removedAndMadeAgain(hasInotify: Bool) throws {
        let watched = try WatchedPlace(hasInotify: hasInotify)
        let place = watched.place
        try watched.expect(.absent)
        try place.removeDirectory(place.locks)
        try watched.expect(.parentChanged)
        #expect(try watched.nextTimeout() == (hasInotify ? -1 : 50))
        try place.makeDirectory(place.locks)
        // This is a new directory, but a lock file in it counts nevertheless.
        try watched.expectLock()
        try place.remove(place.lock)
        try watched.expect(.parentChanged)
    }

    @Test("a lock file that is there is reported first")
    func aLockFileThatIsThereIsReportedFirst() throws {
        let place = try Place()
        try place.create(place.lock)
        let watched = try WatchedPlace(in: place)
        try watched.expect(.present)
        #expect(watched.reportCount == 1)
    }

    @Test("several lock files are reported in their order")
    func severalLockFilesAreReportedInTheirOrder() throws {
        let watched = try WatchedPlace(["one", "two", "../three"])
        let place = watched.place
        try watched.expect(.absent, .absent, .absent)
        try place.create("\(place.parent)/three")
        try watched.expect(.absent, .absent, .present)
        try place.create("\(place.locks)/one")
        try watched.expect(.present, .absent, .present)
        try place.remove("\(place.parent)/three")
        try watched.expect(.present, .absent, .absent)
        try place.create("\(place.locks)/two")
        try place.remove("\(place.locks)/one")
        try watched.expect(.absent, .present, .absent)
    }

    @Test("many quick changes end in the right answer", arguments: [true, false])
    func manyQuickChangesEndInTheRightAnswer(hasInotify: Bool) throws {
        let watched = try WatchedPlace(hasInotify: hasInotify)
        let place = watched.place
        for _ in 0..<10_000 {
            try place.create(place.lock)
            try place.remove(place.lock)
        }
        _ = try watched.nextTimeout()
        try watched.expect(.absent)
        for _ in 0..<10_000 {
            try place.create(place.lock)
            try place.remove(place.lock)
        }
        try watched.expectLock()
    }

    /// Causes more events than the queue takes (16384), while the callback delays the watch.
    @Test("an overflow of the queue loses nothing")
    func anOverflowOfTheQueueLosesNothing() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        let limit = try String(contentsOfFile: "/proc/sys/fs/inotify/max_queued_events", encoding: .utf8)
        let count = (Int(limit.dropLast()) ?? 16384) / 2 + 100
        try watched.holdingReports {
            try place.create(place.lock)
            // Use different names, because the kernel merges equal events in a row.
            for number in 0..<count {
                try place.create("\(place.locks)/\(number)")
                try place.remove("\(place.locks)/\(number)")
            }
            try place.remove(place.lock)
        }
        try watched.expect(.absent)
    }

    @Test("refresh reports in any case")
    func refreshReportsInAnyCase() throws {
        let watched = try WatchedPlace()
        try watched.expect(.absent)
        let count = watched.reportCount
        _ = try watched.nextTimeout()
        #expect(watched.reportCount == count + 1)
        try watched.expect(.absent)
    }

    @Test("nothing is reported after stop")
    func nothingIsReportedAfterStop() throws {
        let watched = try WatchedPlace()
        try watched.expect(.absent)
        watched.watch.stop()
        watched.watch.stop()
        let count = watched.reportCount
        try watched.place.create(watched.place.lock)
        watched.watch.refresh()
        #expect(watched.reportCount == count)
    }

    @Test("an idle watch does not wake")
    func anIdleWatchDoesNotWake() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        #expect(try watched.nextTimeout() == -1)
        let count = watched.sleepCount
        // The directory further up is busy, and there are new entries beside the lock files' directory.
        for number in 0..<2000 {
            let busy = "\(place.ancestor)/\(number)"
            try place.create(busy)
            try place.move(busy, busy + ".new")
            try place.remove(busy + ".new")
            try place.create("\(place.parent)/\(number)")
        }
        // Changes of mode in /tmp wake the watch, too.
        #expect(watched.sleepCount - count < 1000)
    }

    /// Prints the latency, because nothing is purged before the report.
    @Test("latency from creation to report")
    func latencyFromCreationToReport() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        var times: [Duration] = []
        for _ in 0..<200 {
            let start = ContinuousClock.now
            try watched.expectLock()
            times.append(ContinuousClock.now - start)
            try place.remove(place.lock)
            try watched.expect(.absent)
        }
        times.sort()
        print("lock file created to report: median \(times[100]), p99 \(times[198])")
        #expect(times[100] < .seconds(1))
    }
}
