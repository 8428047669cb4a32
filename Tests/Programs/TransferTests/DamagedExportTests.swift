import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// `vaultfs export` of a damaged vault.
@Suite(.timeLimit(.minutes(60))) struct DamagedExportTests {
    private let place: TransferPlace

    /// Makes four files: the second has bad chunks, the third is cut short, and the fourth has a bad header.
    init() throws {
        place = try TransferPlace()
        for (name, size) in [("a", 4_000_000), ("b", 3_000_000), ("c", 50_000), ("d", 20_000)] {
            try place.make("tree/\(name)", size: size)
        }
        try place.importing("tree").run().succeeded()
        let files = try place.backingFiles()
        for chunk in [5, 6, 300] { try place.flip(files[1], at: 128 + UInt64(chunk) * 4128 + 100) }
        try #require(truncate(files[2], 128 + 4 * 4128) == 0)
        try place.flip(files[3], at: 20)
    }

    @Test("without --damaged a damaged file is an error, and nothing of it is written")
    func withoutDamagedDamagedFile() throws {
        let result = try place.exporting(to: "out").run()
        #expect(result.exitCode == FailureCode.incomplete.rawValue)
        #expect(result.errors.contains("b: chunk 5: its data is damaged"))
        #expect(result.errors.contains("c: it should be 50000 bytes long, 16384 are there"))
        let end = " 3 failures: put back what is damaged from a backup, or save the rest of it with --damaged\n"
        #expect(result.errors.hasSuffix(end), "\(result)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.path("out")) == ["a"])
    }

    @Test("Directory-4: a directory with the record of one above is an error, and the export ends")
    func repeatedRecord() throws {
        let place = try TransferPlace()
        try Command(["mkdir", "-p", place.path("tree/outer/inner")]).run().succeeded()
        try place.importing("tree").run().succeeded()
        let vault = place.vault.vault
        let entries = try FileManager.default.subpathsOfDirectory(atPath: vault).filter { $0.hasSuffix("/vaultfs.dir") }
        let records = entries.sorted { $0.count < $1.count }.map { vault + "/" + $0 }
        try #require(records.count == 2)
        try Data(contentsOf: URL(filePath: records[0])).write(to: URL(filePath: records[1]))
        let result = try place.exporting(to: "out").run()
        #expect(result.exitCode == FailureCode.incomplete.rawValue)
        #expect(result.errors.contains("outer/inner: vaultfs.dir: the record of a directory above"), "\(result)")
        #expect(try FileManager.default.contentsOfDirectory(atPath: place.path("out")) == ["outer"])
    }

    @Test("with --damaged what verifies comes out, and what does not is listed")
    func withDamagedWhatVerifiesComes() throws {
        // The second run finds the files in place, and must report the same.
        for round in 1...2 {
            let result = try place.exporting(to: "out", options: ["--damaged", "--json"]).run()
            #expect(result.exitCode == FailureCode.damageFound.rawValue)
            #expect(
                result.errors.contains("b: damaged: bytes 20480-28671, 1228800-1232895: chunk 5: its data is damaged"))
            let damage = try #require(try result.fields()["damage"] as? [[String: Any]])
            let ranges = Dictionary(
                uniqueKeysWithValues: damage.map {
                    ($0["path"] as? String ?? "", $0["ranges"] as? [[String: Int]] ?? [])
                })
            #expect(
                ranges == [
                    "b": [["offset": 20480, "count": 8192], ["offset": 1_228_800, "count": 4096]],
                    "c": [["offset": 16384, "count": 33616]], "d": [],
                ], "round \(round)")
        }
        for (name, damaged) in [("a", []), ("b", [20480..<28672, 1_228_800..<1_232_896]), ("c", [16384..<50000])] {
            var wanted = try Data(contentsOf: URL(fileURLWithPath: place.path("tree/\(name)")))
            for range in damaged { wanted.replaceSubrange(range, with: Data(count: range.count)) }
            #expect(try Data(contentsOf: URL(fileURLWithPath: place.path("out/\(name)"))) == wanted, "\(name)")
        }
        #expect(access(place.path("out/d"), F_OK) != 0)
    }

    /// The file is cut in its data, in the hole after it, or in the data after the hole.
    @Test("the part that is cut off a sparse file is no hole", arguments: [100_000, 2_000_000, 4_300_000])
    func partThatIsCutOff(size: Int) throws {
        let script = "cd \(place.path("tree")); rm ?; head -c 200000 /dev/urandom >e; truncate -s 4200000 e; "
        try Command(["sh", "-c", script + "head -c 200000 /dev/urandom >>e; cp e ../whole"]).run().succeeded()
        let vault = try TransferPlace()
        try Command(["mv", place.path("tree"), vault.path("tree")]).run().succeeded()
        try vault.importing("tree").run().succeeded()
        try #require(truncate(vault.backingFiles()[0], off_t(size)) == 0)
        let result = try vault.exporting(to: "out", options: ["--damaged", "--json"]).run()
        #expect(result.exitCode == FailureCode.damageFound.rawValue)
        let damage = try #require(try result.fields()["damage"] as? [[String: Any]])
        let first = (size - 128) / 4128 * 4096
        #expect(damage.first?["ranges"] as? [[String: Int]] == [["offset": first, "count": 4_400_000 - first]])
        var wanted = try Data(contentsOf: URL(fileURLWithPath: place.path("whole")))
        wanted.replaceSubrange(first..., with: Data(count: wanted.count - first))
        #expect(try Data(contentsOf: URL(fileURLWithPath: vault.path("out/e"))) == wanted)
    }

    @Test(
        "without a log that can be read it is exported all the same, and says so",
        arguments: ["mkfifo", "mkdir", "ln -s /dev/zero"])
    func withoutLogThatCan(make: String) throws {
        let log = "\(place.vault.vault)/vaultfs.log"
        try Command(["sh", "-c", "rm -f \(log); \(make) \(log)"]).run().succeeded()
        let result = try place.exporting(to: "out", options: ["--damaged"]).run()
        #expect(result.exitCode == FailureCode.damageFound.rawValue)
        #expect(result.errors.contains("vaultfs: vaultfs.log is a"), "\(result)")
        let refused = try place.importing("tree").run()
        #expect(refused.exitCode == FailureCode.notAVault.rawValue && refused.errors.contains("verify --repair"))
    }

    @Test("a name that does not authenticate is not passed over in silence")
    func nameThatDoesNotAuthenticate() throws {
        let files = try place.backingFiles()
        let name = (files[0] as NSString).lastPathComponent
        let changed = (name.hasPrefix("A") ? "B" : "A") + name.dropFirst()
        try Command(["mv", files[0], "\(place.vault.vault)/\(changed)"]).run().succeeded()
        let result = try place.exporting(to: "out", options: ["--damaged"]).run()
        #expect(result.exitCode == FailureCode.damageFound.rawValue)
        #expect(result.errors.contains("1 damaged name left out"), "\(result)")
    }
}
