import Foundation
import TestSupport
import Testing
import ViewFormats

@testable import Transfer

@Suite(.timeLimit(.minutes(60))) struct ExportTreeTests {
    private let place: ExportPlace

    init() throws { place = try ExportPlace() }

    @Test("a tree comes out as it is, with its times and links, for one user alone")
    func treeComesOut() throws {
        try Command(["mkdir", "-p", "\(place.source)/a/b", "\(place.source)/nothing"]).run().succeeded()
        let counts = ["empty": 0, "one": 1, "a/block": 16, "a/b/page": 4096, "a/b/odd": 3_000_001]
        for (name, count) in counts { try place.write(pattern(count), to: name) }
        try place.write([1, 2, 3], to: "program", mode: 0o755)
        try place.write([1, 2, 3], to: "kept", mode: 0o444)
        try Command(["ln", "-s", "/nonexistent/out", "\(place.source)/a/link"]).run().succeeded()
        for name in ["a/link", "a/b", "a", "nothing"] { try place.age("\(place.source)/\(name)") }
        let totals = try place.export()
        #expect(place.failures.isEmpty)
        #expect(totals.files == 7 && totals.directories == 3 && totals.symbolicLinks == 1 && totals.present == 0)
        #expect(totals.bytes == UInt64(counts.values.reduce(6, +)))
        for (name, count) in counts { #expect(try place.exported(name) == pattern(count), "\(name)") }
        for name in ["one", "a/b/odd", "a/link", "a/b", "a", "nothing"] {
            let status = try #require(place.status(name))
            #expect(status.st_mtim.tv_sec == ExportPlace.time.tv_sec, "\(name)")
            #expect(status.st_mtim.tv_nsec == ExportPlace.time.tv_nsec, "\(name)")
        }
        #expect(place.status("one")?.st_mode == S_IFREG | 0o600)
        #expect(place.status("program")?.st_mode == S_IFREG | 0o700)
        #expect(place.status("kept")?.st_mode == S_IFREG | 0o400)
        #expect(place.status("nothing")?.st_mode == S_IFDIR | 0o700)
        #expect(
            try FileManager.default.destinationOfSymbolicLink(atPath: "\(place.destination)/a/link")
                == "/nonexistent/out")
        #expect(try place.partials.isEmpty)
    }

    @Test("exported again, everything is there already")
    func exportedAgain() throws {
        try place.write(pattern(100_000))
        try Command(["ln", "-s", "file", "\(place.source)/link"]).run().succeeded()
        try Command(["mkdir", "\(place.source)/directory"]).run().succeeded()
        try place.export()
        let before = try #require(place.status("file"))
        let totals = try place.export()
        #expect(totals.files == 0 && totals.directories == 0 && totals.symbolicLinks == 0 && totals.present == 2)
        #expect(totals.bytes == 0 && totals.bytesPresent == 100_000)
        #expect(place.status("file")?.st_ino == before.st_ino)
    }

    @Test("a file that cannot be decrypted, or is none, is named, and the rest goes on")
    func fileThatCannotBeDecrypted() throws {
        try place.write(pattern(5000), to: "good")
        try place.write(pattern(5000), to: "cut")
        try #require(truncate("\(place.source)/cut", 5001) == 0)
        try place.writeHole(4096, to: "wrong")
        place.padding = .pkcs7
        try #require(mkfifo("\(place.source)/fifo", 0o600) == 0)
        let totals = try place.export()
        #expect(totals.files == 1 && totals.failed == 3)
        #expect(try place.names == ["good"])
        #expect(place.failures["cut"]?.contains("not a multiple of 16") == true)
        #expect(place.failures["wrong"]?.contains("no valid padding") == true)
        #expect(place.failures["fifo"] == "neither a file nor a directory nor a link")
    }

    @Test(
        "an object that has the name already stays",
        arguments: ["file", "link", "directory", "same size", "same size and time"])
    func objectThatHasNameAlready(kind: String) throws {
        try place.write(pattern(5000))
        let target = "\(place.destination)/file"
        let foreign = place.directory.appending("foreign")
        let same = [UInt8](repeating: 1, count: 5000)
        switch kind {
        case "file": try Data([1, 2, 3]).write(to: URL(filePath: target))
        case "link": try Command(["ln", "-s", foreign, target]).run().succeeded()
        case "directory": try Command(["mkdir", target]).run().succeeded()
        default: try Data(same).write(to: URL(filePath: target))
        }
        if kind == "same size and time" { try place.age(target) }
        let before = try #require(place.status("file"))
        let totals = try place.export()
        #expect(totals.failed == 1)
        #expect(place.failures["file"]?.hasPrefix("something else is there already") == true)
        #expect(place.status("file")?.st_ino == before.st_ino)
        #expect(access(foreign, F_OK) != 0)
        if kind.hasPrefix("same") { #expect(try place.exported() == same) }
        #expect(try place.partials.isEmpty)
    }

    @Test("no link at the destination leads out of it")
    func noLinkAtDestinationLeads() throws {
        try Command(["mkdir", "\(place.source)/a"]).run().succeeded()
        try place.write([1], to: "a/file")
        let outside = place.directory.appending("outside")
        try Command(["mkdir", outside]).run().succeeded()
        try Command(["ln", "-s", outside, "\(place.destination)/a"]).run().succeeded()
        let totals = try place.export()
        #expect(totals.failed == 1 && totals.files == 0)
        #expect(try FileManager.default.contentsOfDirectory(atPath: outside).isEmpty)
    }

    @Test("a file with another time is refused before its key is needed")
    func fileWithAnotherTime() throws {
        try place.write(pattern(5000))
        try Data([1]).write(to: URL(filePath: "\(place.destination)/file"))
        place.keyBytes = [1]
        #expect(try place.export().failed == 1)
        #expect(place.failures["file"]?.hasPrefix("something else is there already") == true)
    }

    @Test("names of one file are copied each, and what is there can be compared and replaced")
    func namesOfOneFile() throws {
        try place.write(pattern(5000))
        try Command(["ln", "\(place.source)/file", "\(place.source)/other"]).run().succeeded()
        #expect(try place.export().files == 2)
        #expect(place.status("file")?.st_nlink == 1)
        try Data(pattern(5001)).write(to: URL(filePath: "\(place.destination)/file"))
        #expect(try place.export(isComparing: true).failed == 1)
        place.isReplacing = true
        let totals = try place.export()
        #expect(totals.files == 1 && totals.present == 1)
        #expect(try place.exported() == pattern(5000))
        let compared = try place.export(isComparing: true)
        #expect(compared.files == 2 && compared.failed == 0 && compared.different == 0)
    }

    @Test("a file does not replace its own source")
    func fileDoesNotReplace() throws {
        try place.write(pattern(5000))
        try Command(["ln", "\(place.source)/file", "\(place.destination)/file"]).run().succeeded()
        place.isReplacing = true
        #expect(try place.export().failed == 1)
        #expect(place.failures["file"] == "the destination is the source")
    }
}
