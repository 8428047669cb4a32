import DiskSimulation
import Foundation
import TestSupport
import Testing
import VaultFormat

/// Random operations, and the states possible after a kill or a power cut at any moment, also during recovery.
///
/// `scripts/torture/cuts` runs it with more cuts. VAULTFS_CUT_COUNT and VAULTFS_CUT_SEED give the number of cuts and
/// the seed of the first run, VAULTFS_CUT_NUMBER the only cut of that run to make, and VAULTFS_CUT_FAILURES the number
/// of failures after which a lane ends.
@Suite(.timeLimit(.minutes(60))) struct SimulatedDiskTests {
    /// Number of cuts in a run, including those of recoveries.
    private static let cutsOfARun = 200
    private static let lanes = 4

    private static func setting(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    private static let count = Int(setting("VAULTFS_CUT_COUNT") ?? 8_000)
    private static let seed = setting("VAULTFS_CUT_SEED") ?? 1
    private static let onlyNumber = setting("VAULTFS_CUT_NUMBER").map { Int($0) }
    private static let mostFailures = Int(setting("VAULTFS_CUT_FAILURES") ?? 3)

    @Test("fsynced data is there after a cut, and every chunk is one that was written", arguments: 0..<lanes)
    func cuts(lane: Int) throws { try run(lane, Self.count, .complete) }

    /// The lock's own threads make calls too, so a seed gives the same operations but not always the same calls.
    @Test("the same of files that arrive in locked inboxes", arguments: 0..<lanes)
    func arrivals(lane: Int) throws { try run(lane, Self.count / 4, .inbox) }

    private func run(_ lane: Int, _ count: Int, _ rootClass: ProtectionClass) throws {
        let runs = Self.onlyNumber == nil ? (count + Self.cutsOfARun - 1) / Self.cutsOfARun : 1
        var failures = 0
        for number in stride(from: lane, to: runs, by: Self.lanes) {
            let run = try CutRun(seed: Self.seed + UInt64(number), only: Self.onlyNumber, rootClass)
            try run.make { failure in
                failures += 1
                Issue.record(Comment(rawValue: failure))
                return failures < Self.mostFailures
            }
            if failures >= Self.mostFailures { return }
        }
    }
}

/// One recorded run of operations, and cuts of it.
private struct CutRun {
    private let seed: UInt64
    private let only: Int?
    private let vault: CutVault
    private let directory: TemporaryDirectory
    private let record: DiskRecord
    private let check: CutCheck

    /// Returns the chunk size for a seed, mostly the smallest.
    private static func chunkSize(_ seed: UInt64) -> Int {
        switch seed % 20 {
        case 17: 8192
        case 18: 16384
        case 19: seed % 40 == 39 ? 1 << 20 : 1 << 16
        default: 4096
        }
    }

    init(seed: UInt64, only: Int?, _ rootClass: ProtectionClass) throws {
        (self.seed, self.only) = (seed, only)
        vault = try CutVault(chunkSize: Self.chunkSize(seed), rootClass: rootClass)
        directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
        let workload = try CutWorkload(vault, at: directory.appending("vault"), seed: seed)
        record = try workload.run(steps: vault.chunkSize > 1 << 16 ? 25 : 60)
        check = try CutCheck(vault, workload.model)
    }

    /// Makes the cuts, in the order of the calls. Every fifth is a kill. Some recoveries are cut too.
    /// - Parameter onFailure: called with each failure. Returns false to end.
    func make(onFailure: (String) -> Bool) throws {
        let events = record.events
        var disk = SimulatedDisk(record.initial)
        var former = record.initial
        var applied = 0
        // Two cuts of every fifth recovery make it 200. There are fewer with large chunks, whose mounts take long.
        let cuts = vault.chunkSize > 1 << 16 ? 14 : 143
        let planned = (0..<cuts).map { number -> (number: Int, cut: Cut) in
            var random = SeededGenerator(seed: seed &* 1_000_003 &+ UInt64(number))
            let call = random.below(events.count + 1)
            return (number, Cut(call: call, isKill: number % 5 == 0, seed: random.next()))
        }
        for (number, cut) in planned.sorted(by: { $0.cut.call < $1.cut.call }) {
            while applied < cut.call {
                disk.apply(events[applied])
                applied += 1
            }
            if let only, only != number { continue }
            let next = applied < events.count ? events[applied] : nil
            var state = cut.isKill ? disk.killed(during: next, seed: cut.seed) : disk.cut(seed: cut.seed)
            // Simulates a sync client or a backup that has copied files before the cut.
            if cut.seed % 3 == 0 { state.addForeignCopies(of: former, seed: cut.seed) }
            if cut.seed % 4 == 1 { former = disk.killed(during: nil, seed: 0) }
            let problems = try problems(of: state, cut, number, recoveryIsCut: [5, 8, 9, 18].contains(number % 20))
            if !problems.isEmpty && !onFailure(text(problems, cut, number, events)) { return }
        }
    }

    private func problems(
        of state: DiskState, _ cut: Cut, _ number: Int, recoveryIsCut: Bool
    ) throws -> [CutProblem] {
        let path = directory.appending("cut-\(number)")
        try state.write(to: path)
        try CutVault.reboot(path)
        defer { try? FileManager.default.removeItem(atPath: path) }
        if [2, 7, 14, 16].contains(number % 20), let wound = try LogWound(path, vault, seed: cut.seed) {
            return try check.problems(path, cut, isUsed: false, wound)
        }
        guard recoveryIsCut else { return try check.problems(path, cut, isUsed: [0, 3, 13].contains(number % 20)) }
        let recovery = try DiskRecord(of: path)
        var problems = try check.problems(path, cut, isUsed: false)
        recovery.stop()
        var random = SeededGenerator(seed: cut.seed &+ 1)
        let events = recovery.events
        for again in 0..<2 where problems.isEmpty {
            var disk = SimulatedDisk(recovery.initial)
            let call = random.below(events.count + 1)
            for event in events[..<call] { disk.apply(event) }
            let state = again == 0 ? disk.cut(seed: random.next()) : disk.killed(during: nil, seed: 0)
            let inner = path + "-\(again)"
            try state.write(to: inner)
            try CutVault.reboot(inner)
            defer { try? FileManager.default.removeItem(atPath: inner) }
            problems = try check.problems(inner, cut, isUsed: false)
        }
        return problems
    }

    private func text(_ problems: [CutProblem], _ cut: Cut, _ number: Int, _ events: [DiskEvent]) -> String {
        let replay = "VAULTFS_CUT_SEED=\(seed) VAULTFS_CUT_NUMBER=\(number)"
        let what = "\(cut.isKill ? "kill" : "power cut") before call \(cut.call) of \(events.count)"
        var lines = ["chunks of \(vault.chunkSize), \(what), \(replay):"] + problems.prefix(5).map { "  \($0)" }
        if only != nil {
            for (text, span) in check.model.operations where span.begun <= cut.call {
                lines.append("\(text) [\(span.begun)..<\(span.returned)]")
                for call in span.begun..<min(span.returned, cut.call) { lines.append("    \(call) \(events[call])") }
            }
        }
        return lines.joined(separator: "\n").replacing(String(repeating: "l", count: 200), with: "long")
    }
}
