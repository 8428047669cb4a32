import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing

@Suite("The traits of a store")
struct StoreTraitsTests {
    private static let entry = StoreTraits.prefix + "1"

    @Test("A local disk has all abilities, and the probe leaves nothing, nor other times")
    func localStore() throws {
        let directory = try TemporaryDirectory()
        let root = try Descriptor(path: FilePath(directory.path), flags: O_RDONLY | O_DIRECTORY)
        futimens(root.fd, [timespec(tv_sec: 1, tv_nsec: 2), timespec(tv_sec: 3, tv_nsec: 4)])
        let traits = StoreTraits(probing: root, entry: Self.entry)
        var expected = StoreTraits()
        expected.replacesOpenFiles = true
        expected.renamesDirectories = true
        expected.overwritesInPlace = true
        expected.locks = .advisory
        expected.keepsModes = true
        expected.keepsUserAttributes = true
        expected.makesHardLinks = true
        expected.makesSymbolicLinks = true
        expected.keepsInodeNumbers = true
        expected.timeGrain = 1
        expected.longestEntry = 255
        #expect(traits == expected)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == [])
        let status = try root.status()
        #expect(status.st_mtim.tv_sec == 3 && status.st_mtim.tv_nsec == 4)
    }

    @Test("The leftovers of a killed probe are removed, and nothing else")
    func leftovers() throws {
        let directory = try TemporaryDirectory()
        let root = try Descriptor(path: FilePath(directory.path), flags: O_RDONLY | O_DIRECTORY)
        let left = directory.path + "/" + String(decoding: Self.entry, as: UTF8.self)
        try FileManager.default.createDirectory(atPath: left + "/directory", withIntermediateDirectories: true)
        for name in ["file", "moved", "link", "directory/file", String(repeating: "n", count: 255)] {
            try Data("probe".utf8).write(to: URL(fileURLWithPath: left + "/" + name))
        }
        let foreign = left + "/other"
        try Data("other".utf8).write(to: URL(fileURLWithPath: foreign))
        StoreTraits.remove(Self.entry, from: root)
        #expect(try FileManager.default.contentsOfDirectory(atPath: left) == ["other"])
        try FileManager.default.removeItem(atPath: foreign)
        StoreTraits.remove(Self.entry, from: root)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == [])
    }

    @Test(
        "Links under the names of a probe lead it nowhere",
        arguments: ["file", "moved", "link", "directory", "moved-directory"])
    func plantedLinks(name: String) throws {
        let (directory, outside) = (try TemporaryDirectory(), try TemporaryDirectory())
        let root = try Descriptor(path: FilePath(directory.path), flags: O_RDONLY | O_DIRECTORY)
        let kept = ["file", "moved", "link"]
        for name in kept { try outside.write(name, "precious") }
        let left = directory.appending("\(Self.entry)")
        try FileManager.default.createDirectory(atPath: left, withIntermediateDirectories: false)
        try FileManager.default.createSymbolicLink(atPath: "\(left)/\(name)", withDestinationPath: outside.path)
        StoreTraits.remove(Self.entry, from: root)
        _ = StoreTraits(probing: root, entry: Self.entry)
        #expect(try FileManager.default.contentsOfDirectory(atPath: outside.path).sorted() == kept.sorted())
    }

    @Test("A store that is only read is not written to")
    func reading() throws {
        let directory = try TemporaryDirectory()
        let root = try Descriptor(path: FilePath(directory.path), flags: O_RDONLY | O_DIRECTORY)
        var expected = StoreTraits()
        expected.longestEntry = 255
        #expect(StoreTraits(reading: root) == expected)
    }

    @Test(
        "a time is rounded down to the grain of the store",
        arguments: [
            (3, 123_456_789, 1, 3, 123_456_789), (3, 123_456_789, 100, 3, 123_456_700),
            (3, 123_456_789, 10_000_000, 3, 120_000_000), (3, 5, 1_000_000_000, 3, 0), (3, 5, 2_000_000_000, 2, 0),
            (4, 0, 2_000_000_000, 4, 0), (-3, 5, 2_000_000_000, -4, 0),
        ])
    func roundedTime(seconds: Int, nanoseconds: Int, grain: Int, expected: Int, expectedNanoseconds: Int) {
        var time = timespec(tv_sec: seconds, tv_nsec: nanoseconds)
        time.round(to: grain)
        #expect((time.tv_sec, time.tv_nsec) == (expected, expectedNanoseconds))
    }
}
