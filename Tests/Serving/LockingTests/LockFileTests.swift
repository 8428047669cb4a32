import Foundation
import LinuxSystem
import SystemPackage
import Testing

@testable import Locking

@Suite struct LockFileTests {
    enum Thing: CaseIterable {
        case file, directory, danglingLink, fifo, closedFile
    }

    private let place: Place
    private let file: LockFile

    init() throws {
        place = try Place()
        file = try place.file()
    }

    @Test("anything there locks", arguments: Thing.allCases)
    func anythingThereLocks(_ thing: Thing) throws {
        #expect(file.check() == .absent)
        switch thing {
        case .file: try place.create(place.lock)
        case .directory: try place.makeDirectory(place.lock)
        case .danglingLink: try place.check(symlink("/nonexistent/target", place.lock), "symlink", place.lock)
        case .fifo: try place.check(mkfifo(place.lock, 0o600), "mkfifo", place.lock)
        case .closedFile:
            try place.create(place.lock)
            chmod(place.lock, 0)
        }
        #expect(file.check() == .present)
        #expect(file.check().isLocked)
        if thing == .directory { try place.removeDirectory(place.lock) } else { try place.remove(place.lock) }
        #expect(file.check() == .absent)
        #expect(!file.check().isLocked)
    }

    @Test("a lock file that was there before locks")
    func lockFileThatWasThere() throws {
        try place.create(place.lock)
        #expect(try place.file().check() == .present)
    }

    @Test("a directory that may not be searched locks")
    func aDirectoryThatMayNotBeSearchedLocks() throws {
        for closed in [place.locks, place.ancestor] {
            chmod(closed, 0)
            try withoutPrivilege { [file] in #expect(file.check() == .unknown(.permissionDenied)) }
            chmod(closed, 0o755)
            try withoutPrivilege { [file] in #expect(file.check() == .absent) }
        }
    }

    @Test("a directory removed locks")
    func aDirectoryRemovedLocks() throws {
        try place.removeDirectory(place.locks)
        #expect(file.check() == .parentChanged)
    }

    /// On ext4 the new file often has the old one's inode number.
    @Test("a directory made again locks")
    func aDirectoryMadeAgainLocks() throws {
        for _ in 0..<20 {
            let file = try place.file()
            try place.removeDirectory(place.locks)
            try place.makeDirectory(place.locks)
            #expect(file.check() == .parentChanged)
            try place.awaitTick()
        }
    }

    @Test("a directory moved locks")
    func aDirectoryMovedLocks() throws {
        for moved in [place.locks, place.parent, place.ancestor] {
            try place.move(moved, moved + ".away")
            #expect(file.check() == .parentChanged)
            try place.move(moved + ".away", moved)
            #expect(file.check() == .absent)
        }
    }

    @Test("another directory in its place locks")
    func anotherDirectoryInItsPlaceLocks() throws {
        for replaced in [place.locks, place.parent] {
            let other = "\(place.ancestor)/other"
            try FileManager.default.createDirectory(atPath: "\(other)/locks", withIntermediateDirectories: true)
            try place.exchange(replaced, other)
            #expect(file.check() == .parentChanged)
            try place.exchange(replaced, other)
            #expect(file.check() == .absent)
            try FileManager.default.removeItem(atPath: other)
        }
    }

    @Test("a file or a link in place of the directory locks")
    func aFileOrALinkInPlaceOfTheDirectoryLocks() throws {
        let away = "\(place.ancestor)/away"
        try place.move(place.locks, away)
        try place.create(place.locks)
        #expect(file.check() == .parentChanged)
        try place.remove(place.locks)
        // The check refuses a link even if it leads to the directory, because it could lead elsewhere the next moment.
        try place.check(symlink(away, place.locks), "symlink", place.locks)
        #expect(file.check() == .parentChanged)
        try place.remove(place.locks)
        try place.move(place.parent, "\(place.ancestor)/parent.away")
        try place.check(symlink("parent", place.parent), "symlink", place.parent)
        #expect(file.check() == .unknown(.tooManySymbolicLinkLevels))
    }

    /// One thread checks continuously while the directory with the lock file is exchanged for an empty one.
    @Test("no moment of a replacement looks unlocked")
    func noMomentOfAReplacementLooksUnlocked() throws {
        let other = "\(place.parent)/other"
        try place.create(place.lock)
        try place.makeDirectory(other)
        for _ in 0..<500 {
            let file = try place.file()
            let found = Monitor<[LockFileState]>([])
            let looker = try BackgroundThread {
                let deadline = ContinuousClock.now + .seconds(10)
                var last: LockFileState?
                while last != .parentChanged, .now < deadline {
                    let state = file.check()
                    if state != last { found.update { $0.append(state) } }
                    last = state
                }
            }
            defer { looker.join() }
            found.wait { $0.isEmpty ? nil : () }
            try place.exchange(place.locks, other)
            let states = found.wait(until: .now + .seconds(20)) { $0.last == .parentChanged ? $0 : nil }
            #expect(states?.contains(.absent) == false)
            try place.exchange(place.locks, other)
        }
    }
}
