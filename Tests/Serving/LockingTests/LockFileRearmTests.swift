import Foundation
import Testing

@testable import Locking

@Suite struct LockFileRearmTests {
    @Test("makes the directory again")
    func makesTheDirectoryAgain() throws {
        let place = try Place()
        let file = try place.file()
        try place.removeDirectory(place.locks)
        try file.rearm()
        var status = stat()
        #expect(stat(place.locks, &status) == 0 && status.st_mode & 0o7777 == 0o700)
        #expect(file.check() == .absent)
        try place.create(place.lock)
        #expect(file.check() == .present)
    }

    @Test("takes the directory that is there")
    func takesTheDirectoryThatIsThere() throws {
        let place = try Place()
        let file = try place.file()
        try place.move(place.locks, place.locks + ".away")
        try place.makeDirectory(place.locks)
        #expect(file.check() == .parentChanged)
        try file.rearm()
        #expect(file.check() == .absent)
    }

    @Test("makes no more than the last directory")
    func makesNoMoreThanTheLastDirectory() throws {
        let place = try Place()
        let file = try place.file()
        try FileManager.default.removeItem(atPath: place.parent)
        #expect(throws: LockFileError("directory \(place.locks) of the lock file does not exist; make it first")) {
            try file.rearm()
        }
        #expect(file.check() == .parentChanged)
    }

    @Test("refuses a directory that others can write and a link")
    func refusesADirectoryThatOthersCanWriteAndALink() throws {
        let place = try Place()
        let file = try place.file()
        let away = place.locks + ".away"
        try place.move(place.locks, away)
        try place.check(symlink(away, place.locks), "symlink", place.locks)
        #expect(throws: LockFileError("\(place.locks), where the lock file is to be, is not a directory")) {
            try file.rearm()
        }
        try place.remove(place.locks)
        try place.makeDirectory(place.locks)
        chmod(place.locks, 0o777)
        #expect(throws: LockFileError.self) { try file.rearm() }
        #expect(file.check() == .parentChanged)
    }

    @Test("checks go on meanwhile")
    func looksGoOnMeanwhile() throws {
        let place = try Place()
        let file = try place.file()
        try place.create(place.lock)
        let isDone = DispatchSemaphore(value: 0)
        nonisolated(unsafe) var sawAbsent = false
        Thread.detachNewThread {
            for _ in 0..<20_000 where file.check() == .absent { sawAbsent = true }
            isDone.signal()
        }
        var rounds = 0
        while isDone.wait(timeout: .now()) == .timedOut, rounds < 1_000_000 {
            try file.rearm()
            rounds += 1
        }
        #expect(!sawAbsent)
    }
}
