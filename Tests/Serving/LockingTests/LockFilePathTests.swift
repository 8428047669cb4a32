import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@testable import Locking

@Suite struct LockFilePathTests {
    private let place: Place

    init() throws { place = try Place() }

    @Test("a path without a name is refused", arguments: ["", "/", ".", "..", "/tmp/..", "/tmp/."])
    func aPathWithoutANameIsRefused(_ path: String) {
        #expect(throws: LockFileError("lock file \(path): not the path of a file")) {
            try LockFile(path: FilePath(path))
        }
    }

    @Test("a name too long is refused")
    func aNameTooLongIsRefused() throws {
        #expect(try place.file(String(repeating: "x", count: 255)).check() == .absent)
        #expect {
            try place.file(String(repeating: "x", count: 256))
        } throws: { error in
            (error as? LockFileError)?.description.contains("the name is too long") == true
        }
    }

    @Test("a directory that is not there is refused")
    func aDirectoryThatIsNotThereIsRefused() throws {
        let missing = FilePath("\(place.locks)/missing")
        #expect(throws: LockFileError("directory \(missing) of the lock file does not exist; make it first")) {
            try LockFile(path: missing.appending("lock"))
        }
        try place.create(place.lock)
        #expect(throws: LockFileError("\(place.lock), where the lock file is to be, is not a directory")) {
            try LockFile(path: FilePath("\(place.lock)/lock"))
        }
    }

    @Test("a directory that others can write is refused", arguments: [0o775, 0o757, 0o1777, 0o730] as [mode_t])
    func aDirectoryThatOthersCanWriteIsRefused(_ mode: mode_t) throws {
        chmod(place.locks, mode)
        let octal = String(mode, radix: 8)
        #expect(
            throws: LockFileError(
                "directory \(place.locks) of the lock file is not safe: others can write in it (mode \(octal))")
        ) { try place.file() }
    }

    @Test("a directory that an ACL opens is refused")
    func aDirectoryThatAnACLOpensIsRefused() throws {
        try Command(["setfacl", "-m", "u:65534:rwx", place.locks]).run().succeeded()
        #expect {
            try place.file()
        } throws: { error in
            (error as? LockFileError)?.description.contains("is not safe") == true
        }
    }

    @Test("a directory of another user is refused")
    func aDirectoryOfAnotherUserIsRefused() throws {
        guard geteuid() == 0 else {
            // A directory of root is as acceptable as one of this user.
            #expect(try LockFile(path: "/usr/device.lock").check() == .absent)
            return
        }
        chown(place.locks, 65534, 65534)
        #expect {
            try place.file()
        } throws: { error in
            (error as? LockFileError)?.description.hasSuffix("is not safe: it belongs to user 65534") == true
        }
    }

    @Test("links in the directory's path are followed at each look, so one that is switched locks")
    func linksInTheDirectorysPathAreFollowed() throws {
        let link = place.temporary.appending("link")
        try place.check(symlink(place.parent, link), "symlink", link)
        let file = try LockFile(path: FilePath("\(link)/./locks/device.lock"))
        #expect(file.check() == .absent)
        try place.create(place.lock)
        #expect(file.check() == .present)
        try place.remove(place.lock)
        #expect(file.check() == .absent)
        let other = place.temporary.appending("other")
        try place.makeDirectory(other)
        try place.makeDirectory("\(other)/locks")
        try place.remove(link)
        #expect(file.check() == .parentChanged)
        try place.check(symlink(other, link), "symlink", link)
        #expect(file.check() == .parentChanged)
        try file.rearm()
        try place.create("\(other)/locks/device.lock")
        #expect(file.check() == .present)
    }

    @Test("a link on the way is never quiet: the watch cannot see it change")
    func aLinkIsNeverQuiet() throws {
        let link = place.temporary.appending("link")
        try place.check(symlink(place.locks, link), "symlink", link)
        let files = LockFiles([try LockFile(path: FilePath("\(link)/device.lock"))])
        let reports = Monitor(0)
        let watch = try LockFileWatch(files: files) { _ in reports.update { $0 += 1 } }
        defer { watch.stop() }
        #expect(reports.wait(until: .now + .seconds(20)) { $0 > 0 ? () : nil } != nil)
        try place.remove(link)
        #expect(files.doLock)
    }

    @Test("a relative path is made absolute")
    func aRelativePathIsMadeAbsolute() throws {
        let here = FileManager.default.currentDirectoryPath
        let up = String(repeating: "../", count: here.split(separator: "/").count)
        let file = try LockFile(path: FilePath(up + place.lock.dropFirst()))
        #expect(file.path == FilePath(place.lock))
    }

    @Test("names need not be text")
    func namesNeedNotBeText() throws {
        let bytes = Array(place.locks.utf8CString.dropLast()) + [0x2F, -1, -2, 0]
        let file = try bytes.withUnsafeBufferPointer { try LockFile(path: FilePath(platformString: Array($0))) }
        #expect(file.check() == .absent)
        let fd = bytes.withUnsafeBufferPointer { bytes in bytes.baseAddress.map { open($0, O_CREAT | O_WRONLY, 0o600) }
        }
        close(try place.check(fd ?? -1, "create", "a name that is not text in \(place.locks)"))
        #expect(file.check() == .present)
    }

    @Test("sightings name the path")
    func sightingsNameThePath() throws {
        let file = try place.file()
        let path = file.path.string
        #expect(file.describe(.present) == "lock file \(path) exists")
        #expect(file.describe(.parentChanged).contains(file.directory.string))
        #expect(file.describe(.unknown(.ioError)) == "cannot check lock file \(path): Input/output error")
    }
}
