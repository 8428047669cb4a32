import Foundation
import SystemPackage
import TestSupport
import Testing

@testable import Locking

/// File systems mounted and unmounted on the path to a lock file, and those with changes that inotify does not fully
/// report.
@Suite(.timeLimit(.minutes(60))) struct LockFileMountTests {
    /// Mounts a file system of the tests: a tmpfs as root, otherwise a bindfs.
    private static func mount(at path: String, of source: String) throws {
        Products.countMount()
        let command = Products.isRoot ? ["mount", "-t", "tmpfs", "-o", "mode=755", "none", path] : bindfs(source, path)
        try Command(command).run().succeeded()
    }

    private static func bindfs(_ source: String, _ path: String) -> [String] {
        ["bindfs", "-n", "-o", "nonempty", source, path]
    }

    /// Unmounts, with retries because another test's child keeps our descriptors until it runs its program.
    private static func unmount(_ path: String) throws {
        let command = Command(Products.isRoot ? ["umount", path] : ["fusermount3", "-u", path])
        try poll("the unmount of \(path)") { try command.run().exitCode == 0 }
    }

    /// Cleans up after a failed test.
    private static func cleanUp(_ path: String) {
        _ = try? Command(Products.isRoot ? ["umount", "-l", path] : ["fusermount3", "-uz", path]).run()
    }

    @Test("mounted over and unmounted")
    func mountedOverAndUnmounted() throws {
        let watched = try WatchedPlace(system: WatchSystem())
        let place = watched.place
        try watched.expect(.absent)
        #expect(try watched.nextTimeout() == -1)
        for target in [place.locks, place.ancestor] {
            try Self.mount(at: target, of: place.temporary.path)
            defer { Self.cleanUp(target) }
            try watched.expect(.parentChanged)
            try Self.unmount(target)
            try watched.expect(.absent)
        }
        try watched.expectLock()
    }

    @Test(
        "in a lower layer of an overlay, making the first lock file does not count as another directory",
        .enabled(if: Products.isRoot, "takes root"))
    func overlay() throws {
        let place = try Place()
        let (upper, work, merged) = (
            place.temporary.appending("upper"), place.temporary.appending("work"), place.temporary.appending("merged")
        )
        for directory in [upper, work, merged] { try place.makeDirectory(directory) }
        let layers = "lowerdir=\(place.ancestor),upperdir=\(upper),workdir=\(work)"
        Products.countMount()
        try Command(["mount", "-t", "overlay", "-o", layers, "none", merged]).run().succeeded()
        defer { Self.cleanUp(merged) }
        let lock = "\(merged)/parent/locks/device.lock"
        let file = try LockFile(path: FilePath(lock))
        try place.create(lock)
        #expect(file.check() == .present)
        try place.remove(lock)
        #expect(file.check() == .absent)
    }

    @Test("unmounted from under the lock file")
    func unmountedFromUnderTheLockFile() throws {
        let place = try Place()
        let source = place.temporary.appending("source")
        try place.makeDirectory(source)
        try Self.mount(at: place.parent, of: source)
        defer { Self.cleanUp(place.parent) }
        try place.makeDirectory(place.locks)
        let watched = try WatchedPlace(in: place, system: WatchSystem())
        try watched.expect(.absent)
        // The watch must not keep the file system busy.
        try Self.unmount(place.parent)
        try watched.expect(.parentChanged)
    }

    @Test("a file system that inotify does not see all of is looked at")
    func aFileSystemThatInotifyDoesNotSeeAllOfIsLookedAt() throws {
        let place = try Place()
        let source = place.temporary.appending("source")
        try FileManager.default.createDirectory(atPath: "\(source)/locks", withIntermediateDirectories: true)
        Products.countMount()
        try Command(Self.bindfs(source, place.parent)).run().succeeded()
        defer { _ = try? Command(["fusermount3", "-uz", place.parent]).run() }
        let watched = try WatchedPlace(in: place, system: WatchSystem())
        try watched.expect(.absent)
        #expect(try watched.nextTimeout() == 50)
        // Change the source, because the mount's inotify does not see this.
        try place.create("\(source)/locks/device.lock")
        try watched.expect(.present)
        try place.remove("\(source)/locks/device.lock")
        try watched.expect(.absent)
    }

    @Test("without the mount table it looks by the clock")
    func withoutTheMountTableItLooksByTheClock() throws {
        let watched = try WatchedPlace(system: WatchSystem(mountTable: "/nonexistent"))
        #expect(try watched.nextTimeout() == 50)
    }

    @Test("a watch that cannot wait says so")
    func aWatchThatCannotWaitSaysSo() throws {
        let system = WatchSystem(poll: { _, _ in
            errno = ENOMEM
            return -1
        })
        let watched = try WatchedPlace(system: system)
        try watched.expect(.failed(.noMemory))
    }
}
