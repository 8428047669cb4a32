import Foundation
import TestSupport
import Testing

/// Returns the same answer for each of three tries at a terminal.
func thrice(_ answer: String) -> [String] { [answer, answer, answer] }

/// A vault for tests of `vaultfs slot` through the binary, and files with secrets.
final class SlotPlace {
    static let passphrase = "correct horse"
    /// The question for a secret of the vault by a command to change slots, and the mark before its answer.
    static let question = "Passphrase that opens the vault now: ="

    let directory: TemporaryDirectory
    let vault: String
    /// The options to open the vault.
    let opening: [String]

    init() throws {
        directory = try TemporaryDirectory()
        vault = directory.appending("vault")
        opening = ["--passfile", try directory.write("passfile", Self.passphrase, mode: 0o600)]
        try directory.write("new", "battery staple\n", mode: 0o600)
        try directory.write("keyfile", String(repeating: "k", count: 40), mode: 0o600)
        try run(["init", vault, "--scrypt-logn", "10", "--no-recovery-key"] + opening).succeeded()
    }

    func file(_ name: String) -> String { directory.appending(name) }

    func run(_ arguments: [String], input: String? = nil, launcher: [String] = []) throws -> CommandResult {
        try Command(launcher + [Products.binary] + arguments, input: input).run()
    }

    /// Runs `vaultfs slot ACTION VAULT ARGUMENTS`.
    func slot(_ action: String, _ arguments: [String], input: String? = nil) throws -> CommandResult {
        try run(["slot", action, vault] + arguments, input: input)
    }

    /// Runs the command on a terminal and answers its prompts (Tests/Support/Programs/commands/terminal.py).
    /// - Returns: the terminal's output, then `echo on`, then `exit N`; and the errors.
    func terminal(
        _ action: String, _ arguments: [String], answers: [String]
    ) throws -> (shown: String, errors: String) {
        try terminal(["slot", action, vault] + arguments, answers: answers)
    }

    func terminal(_ command: [String], answers: [String]) throws -> (shown: String, errors: String) {
        let errors = file("errors")
        let program = [Products.python, Products.program("commands/terminal.py"), errors] + answers
        let result = try Command(program + ["--", Products.binary] + command).run()
        return (try result.succeeded().output, try String(contentsOfFile: errors, encoding: .utf8))
    }

    var configuration: Data { get throws { try Data(contentsOf: URL(fileURLWithPath: "\(vault)/vaultfs.json")) } }

    func slots() throws -> [[String: Any]] {
        let report = try slot("list", ["--json"]).succeeded().fields()
        return try #require(report["slots"] as? [[String: Any]])
    }

    /// Returns true if the vault opens with these options (exit code 0), false if it does not (exit code 4).
    func opens(_ options: [String]) throws -> Bool {
        let code = try slot("list", options).exitCode
        guard code == 0 || code == 4 else { throw TestFailure("exit code \(code)") }
        return code == 0
    }

    /// Expects one line `vaultfs: …` with these words, perhaps with the usage, this exit code, and an unchanged vault
    /// after `body`.
    func expectRefusal(
        _ exitCode: Int32, _ words: String, sourceLocation: SourceLocation = #_sourceLocation,
        _ body: () throws -> CommandResult
    ) throws {
        let before = try configuration
        let result = try body()
        #expect(result.exitCode == exitCode, "\(result)", sourceLocation: sourceLocation)
        #expect(result.errors.hasPrefix("vaultfs: "), "\(result)", sourceLocation: sourceLocation)
        let lines = result.errors.split(separator: "\n")
        #expect(lines.count == 1 || lines[1].hasPrefix("Usage: "), "\(result)", sourceLocation: sourceLocation)
        #expect(result.errors.contains(words), "\(result)", sourceLocation: sourceLocation)
        #expect(try configuration == before, "\(result)", sourceLocation: sourceLocation)
        let entries = try FileManager.default.contentsOfDirectory(atPath: vault).sorted()
        #expect(entries == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"], sourceLocation: sourceLocation)
    }
}
