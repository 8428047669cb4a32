import Foundation
import TestSupport
import Testing

@testable import VaultCare
@testable import vaultfs

/// Progress shown for long work.
@Suite(.timeLimit(.minutes(60))) struct ProgressTests {
    @Test("of a rekey: how much is done, how fast, how long it will be")
    func ofRekey() {
        var totals = RekeyTotals()
        (totals.expectedFiles, totals.expectedBytes) = (240, 18 << 30)
        (totals.files, totals.bytes) = (120, 9 << 30)
        #expect(
            Self.text(WorkProgress.Amount(totals), seconds: 9)
                == "[##########          ]  50%  9 s left  120 of 240 files  9.0 GiB  1.0 GiB/s")
        // There is no estimate of the remaining time yet.
        #expect(
            Self.text(WorkProgress.Amount(RekeyTotals()), seconds: 0)
                == "[                    ]   0%  0 of 0 files  0 B  0 B/s")
        // There was more work than the survey has found.
        (totals.files, totals.bytes) = (300, 20 << 30)
        #expect(
            Self.text(WorkProgress.Amount(totals), seconds: 20)
                == "[####################] 100%  0 s left  300 of 300 files  20.0 GiB  1.0 GiB/s")
    }

    private static func text(_ amount: WorkProgress.Amount, seconds: Double) -> String {
        WorkProgress.parts(amount, seconds: seconds).joined(separator: "  ")
    }

    /// Simulates work with a time for each byte, and for each file about the assumed time.
    @Test(
        "the time left counts files and bytes",
        arguments: [
            // Large files come first, so nearly all bytes are done after a tenth of the time.
            [(files: 4, size: 512 << 20, count: 1), (files: 8000, size: 1000, count: 1)],
            [(files: 8000, size: 1000, count: 1), (files: 4, size: 512 << 20, count: 1)],
            [(files: 800, size: 1000, count: 10), (files: 1, size: 200 << 20, count: 10)],
        ])
    func timeLeft(parts: [(files: Int, size: Int, count: Int)]) throws {
        for factor in [0.7, 1, 1.4] { try expectTimeLeft(parts, costOfFile: factor * WorkProgress.Amount.costOfFile) }
    }

    private func expectTimeLeft(_ parts: [(files: Int, size: Int, count: Int)], costOfFile: Double) throws {
        let byteTime = 1.0 / 500e6
        let fileTime = costOfFile * byteTime
        // A piece of work is a file, or 4 MiB of one.
        var pieces: [(files: Int, bytes: Int)] = []
        for round in 0..<(parts.map(\.count).max() ?? 0) {
            for part in parts where round < part.count {
                for _ in 0..<part.files {
                    let steps = max(1, part.size >> 22)
                    for step in 0..<steps { pieces.append((step == steps - 1 ? 1 : 0, part.size / steps)) }
                }
            }
        }
        func time(_ files: Int, _ bytes: Int) -> Double { Double(files) * fileTime + Double(bytes) * byteTime }
        let total = pieces.reduce((0, 0)) { ($0.0 + $1.files, $0.1 + $1.bytes) }
        var (files, bytes, next) = (0, 0, 0.2)
        var worst = 0.0
        for piece in pieces {
            files += piece.files
            bytes += piece.bytes
            let now = time(files, bytes)
            guard now >= next else { continue }
            next = now + 0.2
            let amount = WorkProgress.Amount(files: files, bytes: UInt64(bytes), total: (total.0, UInt64(total.1)))
            let left = try #require(amount.secondsLeft(after: now))
            let right = time(total.0 - files, total.1 - bytes)
            worst = max(worst, abs(left - right) / (now + right))
        }
        #expect(worst < 0.3, "wrong by \(worst) of the whole time")
    }

    @Test("of a look at a vault")
    func ofLookAtVault() {
        var totals = VerifierTotals()
        (totals.files, totals.bytes, totals.damage) = (1, 3 << 20, 2)
        #expect(VerifyReport.parts(totals, seconds: 2) == ["1 file", "2 damaged", "3.0 MiB", "1.5 MiB/s"])
        #expect(VerifyReport.parts(VerifierTotals(), seconds: 0) == ["0 files", "0 damaged", "0 B", "0 B/s"])
    }

    @Test("a line is never as wide as the terminal: the last parts are left out, and the first is cut")
    func width() {
        let parts = ["[#####]  50%", "0:09 left", "120 files"]
        for (columns, line) in [
            (80, "[#####]  50%  0:09 left  120 files"), (35, "[#####]  50%  0:09 left  120 files"),
            (34, "[#####]  50%  0:09 left"), (24, "[#####]  50%  0:09 left"), (23, "[#####]  50%"),
            (13, "[#####]  50%"),
            (12, "[#####]  50"), (2, "["), (1, ""), (0, ""),
        ] {
            #expect(ProgressLine.fitted(parts, columns: columns) == line, "\(columns)")
        }
        #expect(ProgressLine.fitted([], columns: 80) == "")
    }

    @Test(
        "on a terminal it is there",
        arguments: [
            (["import", "FILE", "VAULT"], 16, "of 1 file"), (["rekey", "VAULT", "--yes"], 2, "of 1 file"),
            (["verify", "VAULT"], 16, " damaged"),
        ]
    )
    func onTerminalItIsThere(words: [String], mebibytes: Int, expected: String) throws {
        var shown = ""
        // On a busy machine the command may finish before it is stopped, or at once afterwards, so try again with more.
        for attempt in 0..<5 {
            shown = try self.shown(words, mebibytes: mebibytes << attempt)
            #expect(shown.hasSuffix("exit 0\n"), "\(shown)")
            if shown.split(separator: "\n").contains(where: { $0.contains("B/s") && $0.contains(expected) }) { return }
        }
        Issue.record("\(shown)")
    }

    @Test("on a terminal that gets narrow meanwhile it is narrower")
    func narrow() throws {
        for attempt in 0..<5 {
            let shown = try self.shown(["import", "FILE", "VAULT"], mebibytes: 16 << attempt, columns: 32)
            let lines = shown.split(separator: "\n").filter { $0.hasPrefix("[") }
            #expect(lines.allSatisfy { $0.count < 32 }, "\(shown)")
            if !lines.isEmpty { return }
        }
        Issue.record("no progress line")
    }

    /// Returns the terminal's output of a command that is stopped for a while.
    /// - Parameter columns: the terminal's width from that stop on. 0 for an unknown one.
    private func shown(_ words: [String], mebibytes: Int, columns: Int = 0) throws -> String {
        let directory = try TemporaryDirectory(in: "/dev/shm")
        let (vault, passfile) = (directory.appending("vault"), try directory.write("passfile", "correct horse"))
        let source = directory.appending("source")
        let making = "mkdir '\(source)' && head -c \(mebibytes)M /dev/zero >'\(source)/file'"
        try Command(["sh", "-c", making]).run().succeeded()
        let secret = ["--passfile", passfile]
        let options = ["--scrypt-logn", "10", "--no-recovery-key"]
        try Command([Products.binary, "init", vault] + options + secret).run().succeeded()
        if words[0] != "import" { try Command([Products.binary, "import", source, vault] + secret).run().succeeded() }
        let command = words.map { $0 == "VAULT" ? vault : $0 == "FILE" ? source : $0 } + secret
        let program = [
            Products.python, Products.program("commands/progress.py"), "2.3", "\(columns)", vault, "--",
            Products.binary,
        ]
        return try Command(program + command).run().succeeded().output
    }
}
