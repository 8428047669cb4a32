import Glibc
import SystemPackage
import TestSupport
import Testing

@testable import Locking

/// The requests' checks of lock files, which rely on the watch while it is quiet.
@Suite(.timeLimit(.minutes(60))) struct LockFilesTests {
    @Test("a request sees each change at once, whatever the watch is doing", arguments: [true, false])
    func atOnce(hasInotify: Bool) throws {
        let watched = try WatchedPlace(hasInotify: hasInotify)
        let (place, files) = (watched.place, watched.files)
        #expect(try watched.nextTimeout() == (hasInotify ? -1 : 50))
        // Wait for the quiet, because other tests' changes in /tmp interrupt it.
        if hasInotify { try poll("quiet") { files.areQuiet } }
        #expect(!files.doLock)
        // The watch wakes, may read the events, and then has to wait.
        try watched.holdingReports {
            try place.create(place.lock)
            #expect(files.doLock)
            try place.remove(place.lock)
            #expect(!files.doLock)
            try place.removeDirectory(place.locks)
            #expect(files.doLock)
        }
        try watched.expect(.parentChanged)
        #expect(files.doLock)
        watched.watch.stop()
        #expect(!files.areQuiet)
    }

    @Test("a request sees a lock file that comes while the watch looks")
    func whileTheWatchLooks() throws {
        let watched = try WatchedPlace()
        let (place, files) = (watched.place, watched.files)
        for _ in 0..<5000 {
            try place.create(place.lock)
            #expect(files.doLock)
            try place.remove(place.lock)
            #expect(!files.doLock)
        }
        // Events of other names do not end the quiet for long.
        try place.create("\(place.locks)/other")
        try poll("quiet") { files.areQuiet }
    }

    @Test("a watch that ends leaves requests to look themselves")
    func withoutWatch() throws {
        let watched = try WatchedPlace(
            system: WatchSystem(mountTable: "/dev/null") { _, _ in
                errno = ENOMEM
                return -1
            })
        try watched.expect(.failed(.noMemory))
        #expect(!watched.files.areQuiet)
        try watched.place.create(watched.place.lock)
        #expect(watched.files.doLock)
    }
}
