internal import ArgumentParser
internal import ViewFormats

/// A help text of ArgumentParser, arranged for reading: a command's own options come first, and options common to many
/// commands are on a page of their own. The parser's means to hide options would hide them from completion and manual
/// pages too.
struct HelpText {
    /// `SECRET OPTIONS:` and the entries below it. An entry is an option or a command, with the lines that explain it.
    private struct Section {
        let title: String
        var entries: [[Substring]] = []
        var lines: [Substring] { [title[...]] + entries.flatMap(\.self) }
    }

    private static let ownTitles = ["ARGUMENTS:", "OPTIONS:"]
    /// Overview and usage.
    private var head: [Substring] = []
    private var sections: [Section] = []
    /// The exit codes, placed after the commands, because a reader looks for these first.
    private var exitCodes: [Substring] = []
    /// The lines after the last section.
    private var tail: [Substring] = []

    /// Fails for any other text, such as a completion script.
    init?(_ text: String) {
        guard text.hasPrefix("OVERVIEW: ") else { return nil }
        var isInSection = false
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.last == ":", line.allSatisfy({ $0.isUppercase || $0 == " " || $0 == ":" }) {
                sections.append(Section(title: String(line)))
                isInSection = true
            } else if line.isEmpty, !sections.isEmpty {
                isInSection = false
            } else if !isInSection {
                if sections.isEmpty { head.append(line) } else { tail.append(line) }
            } else if line.hasPrefix("   "), let last = sections.last?.entries.indices.last {
                sections[sections.count - 1].entries[last].append(line)
            } else {
                sections[sections.count - 1].entries.append([line])
            }
        }
        while head.last?.isEmpty == true { head.removeLast() }
        if let start = head.firstIndex(of: "Exit codes:"), let end = head[start...].firstIndex(of: "") {
            exitCodes = Array(head[start..<end])
            head.removeSubrange(start...end)
        }
    }

    /// - Parameter format: the view format whose options to show.
    func arranged(for format: ViewFormatName?) -> String {
        var references: [Substring] = []
        var shown = Self.ownTitles.flatMap { title in sections.filter { $0.title == title } }
        for var section in sections where !Self.ownTitles.contains(section.title) {
            switch section.title {
            case "SECRET OPTIONS:": references.append("Secrets: see 'vaultfs help secrets'.")
            case "OPTIONS OF MOUNT:": references.append("Mounting and locking: see 'vaultfs mount --help'.")
            case "FORMAT OPTIONS:":
                guard let format else {
                    references.append("Formats: see 'vaultfs view FORMAT --help'.")
                    continue
                }
                section.entries.removeAll { entry in
                    let names = entry[0].split(whereSeparator: { $0 == " " || $0 == "," }).map(String.init)
                    return names.allSatisfy { ViewOptions.formats[$0]?.contains(format) != true }
                }
                shown.append(section)
            default: shown.append(section)
            }
        }
        let parts = [head] + shown.map(\.lines) + [exitCodes, references, tail]
        return parts.filter { !$0.isEmpty }.map { $0.joined(separator: "\n") }.joined(separator: "\n\n")
    }

    /// Turns `vaultfs help COMMAND` into `vaultfs COMMAND --help`. `vaultfs help secrets` is a page of its own.
    static func resolve(_ arguments: [String]) throws -> [String] {
        guard arguments.first == "help" else { return arguments }
        if arguments == ["help", "secrets"] { throw CleanExit.message(SecretHelp.helpMessage()) }
        return arguments.dropFirst() + ["--help"]
    }

    /// Returns the view format in a command line, or nil.
    static func format(in arguments: [String]) -> ViewFormatName? {
        let words = arguments.drop { $0 == "help" }
        guard ["view", "export"].contains(words.first) else { return nil }
        return words.lazy.compactMap(ViewFormatName.init(rawValue:)).first
    }
}

/// The page `vaultfs help secrets`. The command is never run.
struct SecretHelp: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "The options by which a command gets the secret that opens a vault.", usage: "",
        discussion: """
            The passphrase is asked for on the terminal, unless one of these options says where it is. Every command that \
            opens a vault has them; 'unlock' and 'view' have those that make sense for them. A secret is never an argument: \
            other users could see it. Commands that make a slot have such options for the new secret too: --new-passfile \
            and so on.
            """)

    @OptionGroup
    var secret: VaultSecretOptions
}
