import TestSupport
import Testing

/// `scripts/lib/judge.py`, which decides if a row of scripts/system/stores or network has passed.
@Suite struct JudgeTests {
    @Test(
        "a row has passed if each of its steps has one verdict, and none has failed",
        arguments: [
            ("init mount", "init:ok mount:absent", "passed"),
            ("write write", "write:ok write:ok", "passed"),
            ("init mount", "init:ok", "failed: row: no verdict of 1 of 2 steps: mount"),
            ("init mount", "", "failed: row: no verdict of 2 of 2 steps: init, mount"),
            ("write write", "write:ok", "failed: row: no verdict of 1 of 2 steps: write"),
            ("init mount", "init:ok mount:FAILED", "failed: row: mount (FAILED)"),
            ("init", "init:refused", "failed: row: init (refused)"),
            ("init", "init:ok other:ok", "failed: row: verdicts of no step: other"),
            ("", "", "failed: row: has no steps"),
        ])
    func verdicts(steps: String, results: String, expected: String) throws {
        let directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
        let lines = results.split(separator: " ").map {
            $0.split(separator: ":").joined(separator: "\t") + "\tdetail\n"
        }
        try directory.write("row.steps", steps.split(separator: " ").map { "\($0)\n" }.joined())
        try directory.write("row.result", lines.joined())
        let result = try Command([Products.python, "\(Products.root)/scripts/lib/judge.py", directory.path, "row"])
            .run()
        #expect(result.output == expected + "\n" && result.exitCode == (expected == "passed" ? 0 : 1), "\(result)")
    }

    @Test("no rows have not passed")
    func noRows() throws {
        let result = try Command([Products.python, "\(Products.root)/scripts/lib/judge.py", "/"]).run()
        #expect(result.output == "failed: no rows\n" && result.exitCode == 1, "\(result)")
    }
}
