import Foundation
import SystemPackage
import TestSupport
import Testing

@testable import Locking

/// Changes of a lock file's directory, and of its parent directories.
@Suite(.timeLimit(.minutes(60))) struct LockDirectoryWatchTests {
    private let watched: WatchedPlace
    private let place: Place

    init() throws {
        watched = try WatchedPlace()
        place = watched.place
        try watched.expect(.absent)
    }

    @Test("rearmed after it was removed")
    func rearmedAfterItWasRemoved() throws {
        try place.removeDirectory(place.locks)
        try watched.expect(.parentChanged)
        try watched.files.all[0].rearm()
        watched.watch.refresh()
        try watched.expect(.absent)
        try watched.expectLock()
    }

    /// The removal of an open directory gives no event of its own.
    @Test("removed while somebody holds it")
    func removedWhileSomebodyHoldsIt() throws {
        let fd = try place.check(open(place.locks, O_RDONLY | O_DIRECTORY | O_CLOEXEC), "open", place.locks)
        defer { close(fd) }
        try place.removeDirectory(place.locks)
        try watched.expect(.parentChanged)
    }

    @Test("whole tree removed and made again")
    func wholeTreeRemovedAndMadeAgain() throws {
        try FileManager.default.removeItem(atPath: place.ancestor)
        try watched.expect(.parentChanged)
        for directory in [place.ancestor, place.parent, place.locks] {
            try place.makeDirectory(directory)
            #expect(try watched.nextTimeout() == -1)
        }
        try watched.expectLock()
    }

    @Test("moved and back")
    func movedAndBack() throws {
        for moved in [place.locks, place.parent, place.ancestor] {
            let away = place.temporary.appending("away")
            try place.move(moved, away)
            try watched.expect(.parentChanged)
            try place.move(away, moved)
            try watched.expect(.absent)
        }
        try watched.expectLock()
    }

    @Test("exchanged and back")
    func exchangedAndBack() throws {
        for exchanged in [place.locks, place.parent, place.ancestor] {
            let other = place.temporary.appending("other")
            try place.makeDirectory(other)
            try place.exchange(exchanged, other)
            try watched.expect(.parentChanged)
            try place.exchange(exchanged, other)
            try watched.expect(.absent)
            try place.removeDirectory(other)
        }
        try watched.expectLock()
    }

    @Test("replaced by another in one step")
    func replacedByAnotherInOneStep() throws {
        let other = "\(place.parent)/other"
        try place.makeDirectory(other)
        try place.move(other, place.locks)
        try watched.expect(.parentChanged)
        try watched.expectLock()
    }

    @Test("a link on the way")
    func aLinkOnTheWay() throws {
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
        // Start the watch there, because its thread inherits the rights of the thread that starts it.
        nonisolated(unsafe) var started: WatchedPlace?
        nonisolated(unsafe) let place = place
        try withoutPrivilege { started = try? WatchedPlace(in: place) }
        let found = try #require(started)
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
        try found.expectLock()
    }
}
