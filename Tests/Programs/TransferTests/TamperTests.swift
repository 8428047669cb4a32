import Foundation
import Glibc
import TestSupport
import Testing

/// Random changes of backing files. Reads, copies that skip holes, and exports must give the results of `TamperModel`:
/// an error or the right bytes, except for changes listed by the format as not detected.
///
/// `scripts/torture/tamper` runs it with more changes. VAULTFS_TAMPER_COUNT and VAULTFS_TAMPER_SEED set their number
/// and seed.
@Suite(.timeLimit(.minutes(60))) struct TamperTests {
    /// The chunk sizes, and the share of 20 changes made to a vault of each. Large chunks take longer.
    private static let sizes = [(4096, 9), (16384, 6), (65536, 4), (1 << 20, 1)]

    private static func setting(_ name: String) -> UInt64? {
        ProcessInfo.processInfo.environment[name].flatMap { UInt64($0) }
    }

    @Test("an error or the right bytes, except for changes listed as not detected", arguments: sizes)
    func changes(chunkSize: Int, share: Int) throws {
        let count = Int(Self.setting("VAULTFS_TAMPER_COUNT") ?? 2000) * share / 20
        let seed = Self.setting("VAULTFS_TAMPER_SEED") ?? UInt64.random(in: 1...UInt64(Int64.max))
        let vault = try TamperVault(chunkSize: chunkSize, seed: seed)
        var failures = 0
        for number in 0..<count {
            // Each change has its own seed, so a failing one can be repeated alone.
            var random = SeededGenerator(seed: seed ^ UInt64(number) << 24 ^ UInt64(chunkSize))
            let index = Int.random(in: 0..<vault.names.count, using: &random)
            try vault.restore(index)
            var done: [Tampering] = []
            for _ in 0..<[1, 1, 1, 2, 2, 3][Int.random(in: 0..<6, using: &random)] {
                done.append(try Tampering(index, of: vault, &random))
            }
            let found = try TamperCheck(vault, index).problems(isReplay: done.contains(where: \.isReplay))
            if found.isEmpty {
                try vault.restore(index)
                continue
            }
            failures += 1
            Issue.record(
                """
                chunks of \(chunkSize), change \(number), VAULTFS_TAMPER_SEED=\(seed): \
                '\(String(decoding: vault.names[index], as: UTF8.self))': \(done.map(\.text).joined(separator: "; ")): \
                \(found.joined(separator: "; "))
                """)
            if failures == 5 { return }
            try vault.restore(index)
        }
    }
}
