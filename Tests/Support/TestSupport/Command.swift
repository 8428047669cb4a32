import Foundation

/// A finished process's results: its exit code (128 + the signal, if one ended it), standard output and error.
package struct CommandResult: Sendable, CustomStringConvertible {
    package let command: [String]
    package let exitCode: Int32
    package let output: String
    package let errors: String

    package var description: String {
        """
        \(command.joined(separator: " ")): exit \(exitCode)
        output: \(Self.shown(output))
        errors: \(Self.shown(errors))
        """
    }

    /// Returns the first 10,000 characters, without control characters, which an XML report cannot hold (XML 1.0, 2.2).
    private static func shown(_ text: String) -> String {
        let allowed = text.unicodeScalars.lazy.prefix(10_000).map { scalar in
            scalar.value >= 0x20 && scalar.value < 0xFFFE || "\t\n\r".unicodeScalars.contains(scalar)
                ? scalar : "\u{FFFD}"
        }
        var shown = String.UnicodeScalarView()
        shown.append(contentsOf: allowed)
        return String(shown)
    }

    /// Returns the result itself if the exit code is 0. Otherwise throws an error with all details.
    @discardableResult
    package func succeeded() throws -> CommandResult {
        guard exitCode == 0 else { throw TestFailure(description) }
        return self
    }

    /// Parses the output, a JSON object.
    package func fields() throws -> [String: Any] {
        let object = try JSONSerialization.jsonObject(with: Data(output.utf8)) as? [String: Any]
        guard let object else { throw TestFailure("no object: \(description)") }
        return object
    }
}

/// A program to run, with a timeout. It uses posix_spawn(3), because Foundation's Process would wait for a daemon with
/// one of its descriptors. Output goes to files for the same reason.
package struct Command: Sendable {
    package var arguments: [String]
    package var environment: [String: String] = [:]
    package var input: String?
    package var timeout: Duration = .seconds(60)

    package init(
        _ arguments: [String], environment: [String: String] = [:], input: String? = nil,
        timeout: Duration = .seconds(60)
    ) {
        self.arguments = arguments
        self.environment = environment
        self.input = input
        self.timeout = timeout
    }

    /// Runs the program to its end. Beyond `timeout`, kills its process group and throws.
    package func run() throws -> CommandResult {
        let process = try start()
        guard let exitCode = process.wait(timeout: timeout) else {
            process.kill(SIGKILL)
            _ = process.wait(timeout: .seconds(5))
            throw TestFailure("\(arguments.joined(separator: " ")): not done after \(timeout)\n\(process.errors)")
        }
        return CommandResult(
            command: arguments, exitCode: exitCode, output: process.output, errors: process.errors)
    }

    /// Starts the program and returns at once.
    package func start() throws -> RunningProcess {
        try RunningProcess(self)
    }
}
