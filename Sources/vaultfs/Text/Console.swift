internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// What commands say. Results go to stdout; one line for a failure, prompts and progress to stderr.
enum Console {
    static var isStandardErrorTerminal: Bool { isatty(STDERR_FILENO) == 1 }

    /// `vaultfs: …` on stderr.
    static func report(_ message: String) {
        writeToStandardError("vaultfs: \(message)\n")
    }

    /// Bytes as they are, on stderr. What cannot be written is lost: there is nobody to tell.
    static func writeToStandardError(_ text: String) {
        try? writeAll(Array(text.utf8), to: STDERR_FILENO)
    }

    /// Text on stdout, behind what was printed. Unlike `print` it says where that fails.
    static func write(_ text: String) throws(CommandFailure) {
        fflush(nil)
        do throws(StoreError) { try writeAll(Array(text.utf8), to: STDOUT_FILENO) } catch {
            throw CommandFailure(.failure, "cannot write to standard output: \(error.errno)")
        }
    }

    /// A value as JSON on stdout: keys sorted, dates as ISO 8601 text, a line end.
    static func printJSON(_ value: some Encodable) throws(CommandFailure) {
        print(try json(value), terminator: "")
    }

    /// The same as text.
    static func json(_ value: some Encodable) throws(CommandFailure) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted, .withoutEscapingSlashes]
        do {
            return String(decoding: try encoder.encode(value), as: UTF8.self) + "\n"
        } catch {
            throw CommandFailure(.failure, "cannot write JSON: \(error)")
        }
    }

    /// Text that another process sent, which is not to drive the terminal: control characters as `?`.
    static func shown(_ text: String) -> String {
        text.withoutControlCharacters
    }

    /// A label and a value, aligned.
    static func printField(_ label: String, _ value: String) {
        print(label + String(repeating: " ", count: max(1, 26 - label.count)) + value)
    }
}
