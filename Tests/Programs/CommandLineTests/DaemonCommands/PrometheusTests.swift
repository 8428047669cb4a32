import Control
import FileSystem
import Foundation
import TestSupport
import Testing

@testable import vaultfs

/// `status --prometheus`, checked by the rules of promtool(1).
@Suite(.timeLimit(.minutes(60))) struct PrometheusTests {
    private static func mount(_ mountpoint: String, view: String? = nil) -> MountStatus {
        var status = MountStatus(
            version: "0.1.0", pid: 1, vaultPath: "/home/ada/Vault", vaultID: "8f14", mountpoint: mountpoint,
            state: view == nil ? "locked" : "unlocked", readOnly: view != nil, mounted: "2026-11-21T08:00:00Z")
        status.view = view
        let json = """
            {"cacheHits":12,"cacheMisses":18446744073709551615,"cacheSize":1,"cacheUsed":1,"aesBlocksDecrypted":1,
            "ciphertextBytesRead":1,"ciphertextBytesWritten":1,"cryptoMicroseconds":1500000,"storeMicroseconds":3,
            "damagedReads":2,"hiddenNames":1,"filesSealed":1,"completedObjects":1,"isCompleting":true,"nodes":7,
            "keysNeverSwapped":true,"cacheNeverSwapped":true,
            "log":\(view == nil ? #"{"size":1048576,"used":10,"indexMemory":3,"checkpoints":{"due":4}}"# : "null")}
            """
        status.statistics = try? JSONDecoder().decode(Statistics.self, from: Data(json.utf8))
        status.requests = RequestStatistics(served: 99, clientsFollowed: 0)
        status.problems = ["a", "b"]
        return status
    }

    @Test("every metric and every mount")
    func everyMetricAndEveryMount() throws {
        let text = PrometheusText([Self.mount("/home/ada/Private"), Self.mount("/mnt/a\"b\\c\nd", view: "hls")]).text
        try expectValid(text)
        let lines = text.split(separator: "\n").map(String.init)
        for line in [
            "vaultfs_mounts 2", #"vaultfs_locked{mountpoint="/home/ada/Private"} 1"#,
            #"vaultfs_locked{mountpoint="/mnt/a\"b\\c\nd"} 0"#,
            #"vaultfs_mount_info{mountpoint="/home/ada/Private",source="/home/ada/Vault",vault="8f14",view="",version="0.1.0"} 1"#,
            #"vaultfs_cache_hits_total{mountpoint="/home/ada/Private"} 12"#,
            #"vaultfs_crypto_seconds_total{mountpoint="/home/ada/Private"} 1.5"#,
            #"vaultfs_requests_total{mountpoint="/home/ada/Private"} 99"#,
            #"vaultfs_problems{mountpoint="/home/ada/Private"} 2"#,
            #"vaultfs_log_size_bytes{mountpoint="/home/ada/Private"} 1048576"#,
            #"vaultfs_log_checkpoints_total{mountpoint="/home/ada/Private",reason="due"} 4"#,
            "# TYPE vaultfs_damaged_reads_total counter",
        ] {
            #expect(lines.contains(line), "\(line)")
        }
        // A view has no log.
        #expect(!lines.contains { $0.hasPrefix("vaultfs_log") && $0.contains("/mnt") })
    }

    @Test("without a mount there is one line, which an alarm can use")
    func withoutMountThere() throws {
        let text = PrometheusText([]).text
        try expectValid(text)
        #expect(text.hasSuffix("\nvaultfs_mounts 0\n"))
    }

    @Test("status --prometheus prints valid metrics, and refuses --json")
    func statusCommand() throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o700)
        let result = try Command(
            [Products.binary, "status", "--prometheus"], environment: ["XDG_RUNTIME_DIR": directory.path]
        ).run().succeeded()
        try expectValid(result.output)
        let both = try Command([Products.binary, "status", "--prometheus", "--json"]).run()
        #expect(both.exitCode == FailureCode.usage.rawValue, "\(both)")
    }

    /// The rules of the text format (prometheus.io, exposition formats) and of `promtool check metrics`.
    private func expectValid(_ text: String) throws {
        #expect(text.hasSuffix("\n"))
        var (name, kind) = ("", "")
        var seen: Set<String> = []
        let sample = /^(?<name>[a-z_:][a-z0-9_:]*)(?<labels>\{[^ ].*\})? (?<value>[-+.e0-9]+)$/
        let label = /([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"/
        for line in text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init) {
            if let help = line.wholeMatch(of: /# HELP ([a-z_]+) (\S.*)/) {
                name = String(help.1)
                #expect(seen.insert(name).inserted, "\(name) comes twice")
                kind = ""
            } else if let type = line.wholeMatch(of: /# TYPE ([a-z_]+) (counter|gauge)/) {
                #expect(String(type.1) == name && kind.isEmpty, "\(line)")
                kind = String(type.2)
                #expect(name.hasSuffix("_total") == (kind == "counter"), "\(line)")
                #expect(!name.contains("counter") && !name.contains("gauge"), "\(line)")
                for unit in ["millisecond", "microsecond", "nanosecond", "kib", "mib"] {
                    #expect(!name.contains(unit), "\(line)")
                }
            } else {
                let match = try #require(line.wholeMatch(of: sample), "\(line)")
                #expect(String(match.name) == name && !kind.isEmpty, "\(line)")
                #expect(Double(match.value) != nil, "\(line)")
                let series = "\(match.name){\(match.labels ?? "")}"
                #expect(seen.insert(series).inserted, "\(line)")
                guard let labels = match.labels else { continue }
                let pairs = labels.dropFirst().dropLast().matches(of: label)
                let whole = pairs.map { String($0.0) }.joined(separator: ",")
                #expect("{\(whole)}" == String(labels), "\(line)")
                #expect(Set(pairs.map { String($0.1) }).count == pairs.count, "\(line)")
            }
        }
    }
}
