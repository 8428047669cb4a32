import Foundation
import TestSupport
import Testing

@testable import VaultStore
@testable import vaultfs

/// The progress shown for long work.
@Suite(.timeLimit(.minutes(20))) struct ProgressTests {
    @Test func `of a rekey: how much is done, how fast, how long it will be`() {
        let survey = RekeySurvey(files: 240, bytes: 18 << 30)
        var totals = RekeyTotals()
        (totals.files, totals.bytes) = (120, 9 << 30)
        #expect(
            WorkProgress.text(WorkProgress.Amount(totals, of: survey), seconds: 9)
                == "[##########          ]  50%  120 of 240 files  9.0 GiB  1.0 GiB/s  0:09 left")
        // No estimate of the remaining time.
        #expect(
            WorkProgress.text(WorkProgress.Amount(RekeyTotals(), of: RekeySurvey()), seconds: 0)
                == "[                    ]   0%  0 of 0 files  0 B  0 B/s")
        // There was more work than the survey had found.
        (totals.files, totals.bytes) = (300, 20 << 30)
        #expect(
            WorkProgress.text(WorkProgress.Amount(totals, of: survey), seconds: 20)
                == "[####################] 100%  300 of 300 files  20.0 GiB  1.0 GiB/s  0:00 left")
    }

    @Test func `of a look at a vault`() {
        var totals = VerifierTotals()
        (totals.files, totals.bytes, totals.damage) = (1, 3 << 20, 2)
        #expect(VerifyReport.text(totals, seconds: 2) == "1 file  3.0 MiB  1.5 MiB/s  2 damaged")
        #expect(VerifyReport.text(VerifierTotals(), seconds: 0) == "0 files  0 B  0 B/s  0 damaged")
    }

    @Test(arguments: [
        (["import", "FILE", "VAULT"], "16M", "of 1 file"), (["rekey", "VAULT", "--yes"], "2M", "of 1 file"),
        (["verify", "VAULT"], "16M", " damaged"),
    ])
    func `on a terminal it is there`(words: [String], size: String, expected: String) throws {
        var shown = ""
        // On a busy machine the command may have done all of it before it is stopped.
        for _ in 0..<5 {
            shown = try self.shown(words, size: size)
            #expect(shown.hasSuffix("exit 0\n"), "\(shown)")
            if shown.split(separator: "\n").contains(where: { $0.contains("B/s") && $0.contains(expected) }) { return }
        }
        Issue.record("\(shown)")
    }

    /// The terminal's output of a command that is stopped for a while.
    private func shown(_ words: [String], size: String) throws -> String {
        let directory = try TemporaryDirectory(in: "/dev/shm")
        let (vault, passfile) = (directory.appending("vault"), try directory.write("passfile", "correct horse"))
        let source = directory.appending("source")
        try Command(["sh", "-c", "mkdir '\(source)' && head -c \(size) /dev/zero >'\(source)/file'"]).run().succeeded()
        let secret = ["--passfile", passfile]
        let options = ["--scrypt-logn", "10", "--no-recovery-key"]
        try Command([Products.binary, "init", vault] + options + secret).run().succeeded()
        if words[0] != "import" { try Command([Products.binary, "import", source, vault] + secret).run().succeeded() }
        let command = words.map { $0 == "VAULT" ? vault : $0 == "FILE" ? source : $0 } + secret
        let program = [Products.python, Products.program("progress.py"), "2.3", vault, "--", Products.binary]
        return try Command(program + command).run().succeeded().output
    }
}
