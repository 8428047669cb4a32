internal import LinuxSystem

/// One line for each usage error, which ArgumentParser writes in several lines and sentences. Pure.
enum UsageText {
    /// The forms of values, by the value's name in the help. The parser does not say why it refuses one of these.
    private static let forms = [
        "counts": "numbers such as 1,4", "duration": DurationArgument.form, "hex": "32 hexadecimal digits",
        "salt": "none, or 1 to 16 hexadecimal digits",
        "id": "a whole number", "n": "a whole number", "size": ByteSize.form, "sizes": "sizes such as 4K,64K",
        "time": DurationArgument.form, "uri=file": "of the form URI=FILE",
    ]

    /// Returns ArgumentParser's message as one line, in lower case, without full stops.
    static func line(_ message: String) -> String {
        let lines = reasoned(message).split(whereSeparator: \.isNewline).map { line in
            line.drop { $0 == " " }
        }
        return lines.filter { !$0.isEmpty }.map(clause).joined(separator: "; ").replacing(":; ", with: ": ")
    }

    private static func clause(_ line: Substring) -> String {
        var text = line
        while text.last == "." { text.removeLast() }
        // Keep a first word in capitals, which may be a name.
        guard let first = text.first, text.dropFirst().first?.isUppercase != true else { return String(text) }
        return first.lowercased() + text.dropFirst()
    }

    /// Returns `--slot 'x' is not a whole number` for "The value 'x' is invalid for '--slot <id>'".
    private static func reasoned(_ message: String) -> String {
        let pattern = /The value '(.*)' is invalid for '([^'<]*?) ?<([^>]*)>'(.*)/.dotMatchesNewlines()
        guard let (_, value, option, name, reason) = message.wholeMatch(of: pattern)?.output else { return message }
        let start = option.isEmpty ? "<\(name)>" : String(option)
        if reason.hasPrefix(": not ") { return "\(start) '\(value)' is \(reason.dropFirst(2))" }
        if reason.hasPrefix(". Please provide one of ") {
            let values = reason.matches(of: /'([^']*)'|- ([^\n]+)/).compactMap { $0.output.1 ?? $0.output.2 }
            return "\(start) '\(value)' is not one of \(values.joined(separator: ", "))"
        }
        guard reason.isEmpty else { return message }
        // The path may follow a URI, so look for `=~/`, too.
        if PathArgument.isUnexpanded(String(value)) || value.contains("=~/") {
            return
                "\(start) '\(value)': the shell has not replaced ~ by your home directory: write $HOME, or ./~ for a file "
                + "of that name"
        }
        if let form = forms[String(name)] { return "\(start) '\(value)' is not \(form)" }
        return value.isEmpty ? "\(start) is empty" : message
    }

    /// Replaces each argument in a message by its printable form, of at most 256 bytes and without control characters.
    static func showing(_ arguments: [String], in message: String) -> String {
        // Include the parts of `--option=value` and the words of `-o`, because a message may name one alone.
        let texts = arguments.flatMap { argument in
            let parts = argument.split(separator: "=", maxSplits: 1) + argument.split { "=,".contains($0) }
            return [argument] + parts.map(String.init)
        }
        return texts.sorted { $0.utf8.count > $1.utf8.count }.reduce(message) { message, text in
            let safe = shown(ProcessArguments.bytes(of: text))
            return safe == text ? message : message.replacing(text, with: safe)
        }
    }
}
