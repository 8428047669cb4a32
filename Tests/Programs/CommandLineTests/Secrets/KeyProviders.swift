import Foundation
import TestSupport
import Testing

/// Tools for the tests of the key providers in `packaging`.
extension SlotPlace {
    /// Returns a value of PATH with the providers and vaultfs, between these.
    static func path(after first: String? = nil, before last: String = "/usr/bin:/bin") -> String {
        let binaries = URL(fileURLWithPath: Products.binary).deletingLastPathComponent().path
        return [first, "\(Products.root)/packaging", binaries, last].compactMap(\.self).joined(separator: ":")
    }

    func vaultID() throws -> String {
        try #require(run(["info", "--json", vault]).succeeded().fields()["vaultID"] as? String)
    }

    /// Runs a command on a terminal, with these answers. Returns the exit code, the terminal's output and the errors.
    func onTerminal(
        _ answers: [String], _ command: [String], environment: [String: String]
    ) throws -> (code: String?, shown: String, errors: String) {
        let errors = file("errors")
        let result = try Command(
            [Products.python, Products.program("commands/terminal.py"), errors] + answers + ["--", "env"] + command,
            environment: environment
        ).run().succeeded()
        #expect(result.output.contains("echo on"), "\(result)")
        let code = result.output.split(separator: "\n").last.map(String.init)
        return (code, result.output, try String(contentsOfFile: errors, encoding: .utf8))
    }

    /// Expects a provider's refusal in one line, with the exit code of a wrong secret.
    func expectRefused(_ result: CommandResult, _ words: String, sourceLocation: SourceLocation) {
        #expect(result.exitCode == 4, "\(result)", sourceLocation: sourceLocation)
        let isOneLine = result.errors.split(separator: "\n").count == 1
        #expect(
            isOneLine && result.errors.hasPrefix("vaultfs: the --provider command refused: ")
                && result.errors.contains(words), "\(result)", sourceLocation: sourceLocation)
    }

    /// Expects a run-time directory without a file of this provider.
    func expectNothingLeft(of provider: String, sourceLocation: SourceLocation) throws {
        let left = try FileManager.default.contentsOfDirectory(atPath: file("run"))
        #expect(left.filter { $0.hasPrefix(provider) } == [], sourceLocation: sourceLocation)
    }
}
