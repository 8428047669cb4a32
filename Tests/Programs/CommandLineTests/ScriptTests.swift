import Foundation
import TestSupport
import Testing

/// The scripts of `Tests/Support/Scripts`: commands as users type them, with their expected output.
@Suite(.timeLimit(.minutes(60))) struct ScriptTests {
    @Test("a script's commands do what it says", arguments: Script.names)
    func script(name: String) throws {
        let script = try Script(name)
        let directory = try TemporaryDirectory(in: TemporaryDirectory.memory)
        for (path, content) in script.files {
            try FileManager.default.createDirectory(
                atPath: (directory.appending(path) as NSString).deletingLastPathComponent,
                withIntermediateDirectories: true)
            try directory.write(path, content, mode: 0o600)
        }
        for step in script.steps {
            let before = try Self.contents(directory)
            let result = try Command(
                ["env", "-C", directory.path, "sh", "-c", Script.functions + step.command],
                environment: [
                    "PATH": "\((Products.binary as NSString).deletingLastPathComponent):/usr/sbin:/usr/bin:/sbin:/bin",
                    "PYTHON": Products.python, "TERMINAL": Products.program("commands/terminal.py"),
                    "HOME": directory.path,
                ]
            ).run()
            let isAsWritten =
                result.exitCode == step.exitCode && Script.matches(step.output, result.output)
                && Script.matches(
                    step.errors, result.errors.replacing(/(?m)^(Help:  |Usage: |  See 'vaultfs ).*/, with: ""))
            try #require(isAsWritten, "\(name):\(step.line): \(result)")
            guard step.exitCode != 0 else { continue }
            try #require(
                try (Self.contents(directory) != before) == step.changesFiles, "\(name):\(step.line): files: \(result)")
        }
    }

    /// Returns all files below a directory. The lock file counts only by name, because a reader writes its own record.
    private static func contents(_ directory: TemporaryDirectory) throws -> [String: Data?] {
        var contents: [String: Data?] = [:]
        for path in try FileManager.default.subpathsOfDirectory(atPath: directory.path) {
            let isLock = path.hasSuffix("vaultfs.lock")
            contents[path] = .some(isLock ? nil : FileManager.default.contents(atPath: directory.appending(path)))
        }
        return contents
    }
}

/// A script, line by line:
///
///     # A comment.
///     $ a command line of the shell
///     > its next line
///     a line of its output
///     !4 a line of its errors, the first with its exit code, if that is not 0
///     -- NAME --
///     a line of the file NAME, which exists from the beginning
///
/// In expected lines `…` stands for any text, and alone for any lines. Empty lines and spaces at the end do not count,
/// nor does the advice after an error of usage.
/// A command that fails must leave all files as they were, unless a tilde follows its exit code.
private struct Script {
    struct Step {
        let line: Int
        var command: String
        var output: [Substring] = []
        var errors: [Substring] = []
        var exitCode: Int32 = 0
        var changesFiles = false
    }

    static let directory = "\(Products.support)/Scripts"
    static let names = (try? FileManager.default.contentsOfDirectory(atPath: directory).sorted()) ?? ["no scripts"]
    /// `terminal PROMPT=ANSWER... -- COMMAND` runs a command on a terminal, with the command's exit code. It prints
    /// `echo off` if the command leaves the terminal like that.
    static let functions = """
        umask 077
        terminal() {
            errors=$(mktemp) && shown=$("$PYTHON" "$TERMINAL" "$errors" "$@")
            cat "$errors" >&2; rm "$errors"
            printf '%s' "${shown%exit *}" | sed '/^echo on$/d'; return "${shown##*exit }"
        }

        """

    var steps: [Step] = []
    var files: [String: String] = [:]

    init(_ name: String) throws {
        let text = try String(contentsOfFile: "\(Self.directory)/\(name)", encoding: .utf8)
        var file: String?
        for (index, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            if let header = line.wholeMatch(of: /-- (.+) --/) {
                file = String(header.1)
            } else if let file {
                files[file, default: ""] += "\(line)\n"
            } else if line.hasPrefix("$ ") {
                steps.append(Step(line: index + 1, command: String(line.dropFirst(2))))
            } else if !line.isEmpty, !line.hasPrefix("# ") {
                try #require(!steps.isEmpty, "\(name):\(index + 1): no command before this line")
                steps[steps.count - 1].add(line)
            }
        }
        // The script's last line break ends the last file's last line.
        if let file, let content = files[file] { files[file] = String(content.dropLast()) }
        try #require(!steps.isEmpty, "\(name) has no commands")
    }

    /// Returns true if these lines describe a command's output.
    static func matches(_ expected: [Substring], _ found: String) -> Bool {
        let pattern = expected.map { line in
            if line == "…" { return "(.*\n)*" }
            return NSRegularExpression.escapedPattern(for: String(line)).replacing("…", with: ".*") + " *\n"
        }
        let lines = found.split(separator: "\n").filter { !$0.allSatisfy { $0 == " " } }.map { "\($0)\n" }.joined()
        return lines.range(of: "\\A\(pattern.joined())\\z", options: .regularExpression) != nil
    }
}

extension Script.Step {
    fileprivate mutating func add(_ line: Substring) {
        if line.hasPrefix("> ") {
            command += "\n\(line.dropFirst(2))"
        } else if let error = line.wholeMatch(of: /!(\d*)(~?)(?: (.*))?/) {
            if let code = Int32(error.1) { exitCode = code }
            if !error.2.isEmpty { changesFiles = true }
            if let text = error.3 { errors.append(text) }
        } else {
            output.append(line)
        }
    }
}
