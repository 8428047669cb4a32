import Foundation
import SystemPackage
import TestSupport
import Testing

@testable import Locking

/// Changes of a lock file's directory, and of its parent directories.
@Suite(.timeLimit(.minutes(60))) struct LockDirectoryWatchTests {
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
        try place.create(place.lock)
        try watched.expect(.present)
        try place.remove(place.lock)
        try watched.expect(.parentChanged)
    }

    @Test("rearmed after it was removed")
    func rearmedAfterItWasRemoved() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        try place.removeDirectory(place.locks)
        try watched.expect(.parentChanged)
        try watched.files.all[0].rearm()
        watched.watch.refresh()
        try watched.expect(.absent)
        try place.create(place.lock)
        try watched.expect(.present)
    }

    /// The removal of an open directory gives no event of its own.
    @Test("removed while somebody holds it")
    func removedWhileSomebodyHoldsIt() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        let fd = try place.check(open(place.locks, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "open", place.locks)
        defer { close(fd) }
        try place.removeDirectory(place.locks)
        try watched.expect(.parentChanged)
    }

    @Test("whole tree removed and made again")
    func wholeTreeRemovedAndMadeAgain() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        try FileManager.default.removeItem(atPath: place.ancestor)
        try watched.expect(.parentChanged)
        for directory in [place.ancestor, place.parent, place.locks] {
            try place.makeDirectory(directory)
            #expect(try watched.nextTimeout() == -1)
        }
        try place.create(place.lock)
        try watched.expect(.present)
    }

    @Test("moved and back")
    func movedAndBack() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        for moved in [place.locks, place.parent, place.ancestor] {
            let away = place.temporary.appending("away")
            try place.move(moved, away)
            try watched.expect(.parentChanged)
            try place.move(away, moved)
            try watched.expect(.absent)
        }
        try place.create(place.lock)
        try watched.expect(.present)
    }

    @Test("exchanged and back")
    func exchangedAndBack() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        for exchanged in [place.locks, place.parent, place.ancestor] {
            let other = place.temporary.appending("other")
            try place.makeDirectory(other)
            try place.exchange(exchanged, other)
            try watched.expect(.parentChanged)
            try place.exchange(exchanged, other)
            try watched.expect(.absent)
            try place.removeDirectory(other)
        }
        try place.create(place.lock)
        try watched.expect(.present)
    }

    @Test("replaced by another in one step")
    func replacedByAnotherInOneStep() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        let other = "\(place.parent)/other"
        try place.makeDirectory(other)
        try place.move(other, place.locks)
        try watched.expect(.parentChanged)
        try place.create(place.lock)
        try watched.expect(.present)
    }

    @Test("a link on the way")
    func aLinkOnTheWay() throws {
        let watched = try WatchedPlace()
        let place = watched.place
        try watched.expect(.absent)
        // The link leads to the same directory, past the watched directories.
        try place.move(place.parent, "\(place.ancestor)/real")
        try watched.expect(.parentChanged)
        try place.check(symlink("real", place.parent), "symlink", place.parent)
        try watched.expect(.absent)
        #expect(try watched.nextTimeout() == 50)
        try place.move("\(place.ancestor)/real", "\(place.ancestor)/away")
        try watched.expect(.parentChanged)
        try place.remove(place.parent)
        try place.move("\(place.ancestor)/away", place.parent)
        try watched.expect(.absent)
        #expect(try watched.nextTimeout() == -1)
    }

    @Test("closed to this user and opened")
    func closedToThisUserAndOpened() throws {
        let place = try Place()
        // Start the watch there, because its thread inherits the rights of the thread that starts it.
        nonisolated(unsafe) var watched: WatchedPlace?
        nonisolated(unsafe) let started = place
        withoutPrivilege { watched = try? WatchedPlace(in: started) }
        let found = try #require(watched)
        try found.expect(.absent)
        for closed in [place.locks, place.ancestor] {
            chmod(closed, 0)
            try found.expect(.unknown(.permissionDenied))
            chmod(closed, 0o755)
            try found.expect(.absent)
        }
        #expect(try found.nextTimeout() == -1)
        // The watch needs to read a directory. The right to search it is not enough.
        chmod(place.ancestor, 0o711)
        if Products.isRoot { #expect(try found.nextTimeout() == 50) }
        try place.create(place.lock)
        try found.expect(.present)
    }
}
