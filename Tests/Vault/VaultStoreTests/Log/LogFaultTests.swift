import Foundation
import TestSupport
import Testing

@testable import VaultStore

/// Failures of each call of the log, the checkpoint and the end of a mount: once, several times, or for good. The
/// daemon is killed, lives on, or ends.
///
/// VAULTFS_FAULT_STEP=1 makes every call fail in turn. By default some are left out.
@Suite(.timeLimit(.minutes(60))) struct LogFaultTests {
    private static let step = ProcessInfo.processInfo.environment["VAULTFS_FAULT_STEP"].flatMap { Int($0) }

    private func counts(_ kind: CallFaults.Kind) -> [Int] {
        switch kind {
        case .error, .full: [1, 4, .max]
        case .tooLarge: [1, .max]
        case .gone: [12, .max]
        case .interrupted: [3]
        case .short: [1, .max]
        case .torn: [2, 5]
        }
    }

    @Test(
        "Log-14: an error at any call loses nothing that was acknowledged without a report",
        arguments: CallFaults.Kind.allCases, [4096, 1 << 20])
    func everyCall(_ kind: CallFaults.Kind, _ chunkSize: Int) throws {
        let step = Self.step ?? (chunkSize == 4096 ? 11 : 83)
        for (index, count) in counts(kind).enumerated() {
            for ends in [false, true] {
                // Begin at a different call for each count.
                var first = step == 1 ? 0 : index % step
                var calls: Int?
                while calls == nil {
                    calls = try callsWithoutFault(kind, first, count, chunkSize, ends: ends)
                    first += step
                }
                #expect(calls ?? 0 > 30)
            }
        }
    }

    /// Returns the number of calls if the fault is past the last one.
    private func callsWithoutFault(
        _ kind: CallFaults.Kind, _ first: Int, _ count: Int, _ chunkSize: Int, ends: Bool
    ) throws -> Int? {
        let faults = CallFaults(kind, first: first, count: count)
        let context = "\(kind) \(count) times from call \(first), chunks of \(chunkSize), ends \(ends)"
        let run = try LogFaultRun(chunkSize: chunkSize, faults, context)
        run.run(ends: ends)
        guard faults.isReached else { return faults.calls }
        if ends {
            if kind == .interrupted || kind == .short { #expect(run.isUnnoticed, "\(context)") }
            try run.checkEnded()
        } else {
            if kind == .interrupted || kind == .short {
                #expect(run.failures == 0 && run.store.problems.isEmpty, "\(context)")
            }
            try run.checkKilled()
            try run.checkLiving()
        }
        return nil
    }
}
