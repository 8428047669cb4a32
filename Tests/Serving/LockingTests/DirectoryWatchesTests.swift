import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import Locking

/// The effects of events on a watch. Requests rely on the watch while it is quiet.
@Suite(.timeLimit(.minutes(60))) struct DirectoryWatchesTests {
    private let place: Place
    private let inotify: Descriptor

    init() throws {
        place = try Place()
        inotify = Descriptor(owning: try retrying { inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC)) })
    }

    private func arm() -> DirectoryWatches {
        var watches = DirectoryWatches(inotify, to: [FilePath(place.lock)])
        let isComplete = watches.arm()
        #expect(isComplete)
        return watches
    }

    /// Returns the strongest effect of all events. Other tests' events in /tmp cause a check at most.
    private func effect(_ watches: inout DirectoryWatches) throws -> DirectoryWatches.Effect {
        var strongest = DirectoryWatches.Effect.nothing
        var size: Int32 = 1
        while ioctl(inotify.fd, UInt(FIONREAD), &size) == 0, size > 0 {
            strongest = max(strongest, try watches.readEvents())
        }
        return strongest
    }

    @Test("a name beside the lock file leads to a look: it may be another spelling")
    func otherSpelling() throws {
        var watches = arm()
        try place.create("\(place.locks)/DEVICE.LOCK")
        let found = try effect(&watches)
        #expect(found == .check)
    }

    @Test("an event of a directory that is no longer on the path sets the watches again, once")
    func unknownWatch() throws {
        var watches = arm()
        let other = place.temporary.appending("other")
        try place.makeDirectory(other)
        try retrying { inotify_add_watch(inotify.fd, other, UInt32(IN_CREATE | IN_MOVE_SELF)) }
        try place.move(other, other + ".moved")
        var found = try effect(&watches)
        #expect(found == .arm)
        try place.create("\(other).moved/file")
        // This is only IN_IGNORED.
        found = try effect(&watches)
        #expect(found < .arm)
    }
}
