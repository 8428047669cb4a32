internal import CLinux
internal import FoundationEssentials
internal import Glibc
internal import LinuxSystem
internal import Synchronization

/// The output of commands. Results go to stdout, and failures, prompts and progress to stderr.
enum Console {
    private static let quiet = Atomic<Bool>(false)

    /// True with `--quiet`, which prints only requested results, warnings and failures.
    static var isQuiet: Bool { quiet.load(ordering: .relaxed) }

    static var isStandardErrorTerminal: Bool { isatty(STDERR_FILENO) == 1 }

    /// Removes `-q` and `--quiet`, which every command takes, from the arguments before `--`.
    static func takingQuiet(from arguments: [String]) -> [String] {
        let end = arguments.firstIndex(of: "--") ?? arguments.endIndex
        let kept = arguments[..<end].filter { $0 != "-q" && $0 != "--quiet" }
        if kept.count < end { quiet.store(true, ordering: .relaxed) }
        return kept + arguments[end...]
    }

    /// Prints on stdout that the command has done something, unless `--quiet` is given.
    static func confirm(_ text: String) { if !isQuiet { print(text) } }

    /// Prints `vaultfs: …` on stderr, after earlier prints. Replaces control characters except line ends, because those
    /// of an argument would act on the terminal.
    static func report(_ message: String) {
        fflush(nil)
        let text = String(decoding: ProcessArguments.bytes(of: message), as: UTF8.self)
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false).map {
            String($0).withoutControlCharacters
        }
        writeToStandardError("vaultfs: \(lines.joined(separator: "\n"))\n")
    }

    /// Writes to stderr. Ignores errors.
    static func writeToStandardError(_ text: String) { try? writeAll(Array(text.utf8), to: STDERR_FILENO) }

    /// Writes text to stdout, after earlier prints. Unlike `print` it throws errors.
    static func write(_ text: String) throws(CommandFailure) {
        fflush(nil)
        do throws(StoreError) { try writeAll(Array(text.utf8), to: STDOUT_FILENO) } catch {
            throw CommandFailure(.failure, "cannot write to standard output: \(error.errno)")
        }
    }

    /// Prints a value as JSON, with sorted keys.
    static func printJSON(_ value: some Encodable) throws(CommandFailure) { print(try json(value), terminator: "") }

    static func json(_ value: some Encodable) throws(CommandFailure) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .prettyPrinted, .withoutEscapingSlashes]
        do {
            return String(decoding: try encoder.encode(value), as: UTF8.self) + "\n"
        } catch {
            throw CommandFailure(.failure, "cannot write JSON: \(error)")
        }
    }

    /// Returns text from another process, safe for a terminal: control characters become `?`.
    static func shown(_ text: String) -> String { text.withoutControlCharacters }

    /// Prints rows with aligned columns.
    /// - Parameter numbers: the first column to align to the right.
    static func printTable(_ rows: [[String]], numbers: Int = .max) {
        let widths = (rows.first ?? []).indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
        for row in rows {
            let cells = row.enumerated().map { column, text in
                let space = String(repeating: " ", count: widths[column] - text.count)
                return column >= numbers ? space + text : column == row.count - 1 ? text : text + space
            }
            print(cells.joined(separator: "  "))
        }
    }

    /// Prints a label and a value, aligned.
    static func printField(_ label: String, _ value: String) {
        print(label + String(repeating: " ", count: max(1, 26 - label.count)) + value)
    }
}

/// Two values whose fields become one JSON object.
struct JoinedFields<First: Encodable, Second: Encodable>: Encodable {
    let first: First
    let second: Second

    func encode(to encoder: any Encoder) throws {
        try first.encode(to: encoder)
        try second.encode(to: encoder)
    }
}

/// A progress line on stderr, overwritten each time. Shown only on a terminal, and never wider, because CR returns to
/// the start of the last row only.
struct ProgressLine {
    let isShown = Console.isStandardErrorTerminal && !Console.isQuiet
    /// CR, then the ECMA-48 "erase in line".
    private static let startOver = "\r\u{1B}[K"

    /// - Parameter parts: the most important one first. A narrow terminal does not show the last ones.
    func show(_ parts: [String]) {
        guard isShown else { return }
        // Ask each time, because a window can be resized. Some terminals, such as a serial one, do not know: use 80.
        let columns = Int(linux_terminal_columns(STDERR_FILENO))
        Console.writeToStandardError(Self.startOver + Self.fitted(parts, columns: columns > 0 ? columns : 80))
    }

    /// Returns one line. Leaves the last column free, because some terminals begin a new row there.
    static func fitted(_ parts: [String], columns: Int) -> String {
        var line = ""
        for part in parts {
            let longer = line.isEmpty ? part : line + "  " + part
            if longer.count >= columns { break }
            line = longer
        }
        return line.isEmpty ? String((parts.first ?? "").prefix(max(0, columns - 1))) : line
    }

    func clear() {
        if isShown { Console.writeToStandardError(Self.startOver) }
    }
}
