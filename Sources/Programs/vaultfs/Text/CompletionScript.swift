internal import ArgumentParser

/// A completion script of ArgumentParser, with additions: aliases, the words after `help`, and names with spaces and
/// other characters that a shell expands.
enum CompletionScript {
    /// Returns the script with the additions, or nil for any other text.
    static func completed(_ text: String) -> String? {
        if text.hasPrefix("#!/bin/bash\n") { return bash(text) }
        if text.hasPrefix("#compdef vaultfs\n") { return zsh(text) }
        if text.hasPrefix("function __vaultfs_") { return fish(text) }
        return nil
    }

    private static let commands = VaultFS.configuration.subcommands.map { $0.configuration }
    private static let names = commands.compactMap(\.commandName)
    /// Aliases of commands, each with the command's name.
    private static let aliases = commands.flatMap { command in
        command.aliases.map { (alias: $0, name: command.commandName ?? "") }
    }
    /// The words after `help`.
    private static let pages = (names + aliases.map(\.alias)).joined(separator: " ")
    /// The commands with subcommands.
    private static let parents = commands.compactMap { command -> (name: String, words: String)? in
        guard !command.subcommands.isEmpty, let name = command.commandName else { return nil }
        return (name, command.subcommands.compactMap { $0.configuration.commandName }.joined(separator: " "))
    }

    private static func bash(_ script: String) -> String {
        var text = script
        for (alias, name) in aliases {
            text = text.replacing("|\(name)|", with: "|\(alias)|\(name)|")
            text = text.replacing(" \(name) lock ", with: " \(alias) \(name) lock ")
            text = text.replacing("\"_vaultfs_${subcommand}\"", with: "\"_vaultfs_${subcommand/#\(alias)/\(name)}\"")
        }
        // Replace `compgen -W`, because it expands the words, and so would run a command in the name of a file.
        text = text.replacing(
            "__vaultfs_add_completions -W \"$(__vaultfs_custom", with: "__vaultfs_add_words \"$(__vaultfs_custom")
        let ofParents = parents.map { name, words in
            "    3) [[ \"${COMP_WORDS[2]}\" != \(name) ]] || COMPREPLY+=($(compgen -W '\(words)' -- \"${cur}\")) ;;"
        }
        let help = """
            _vaultfs_help() {
                case "${COMP_CWORD}" in
                2) COMPREPLY+=($(compgen -W '\(pages)' -- "${cur}")) ;;
            \(ofParents.joined(separator: "\n"))
                esac
            }

            # Adds those of the program's words, one a line, that begin with the word before the cursor.
            __vaultfs_add_words() {
                local word prefix="${cur}"
                case "${prefix}" in
                [\\"\\']*) prefix="${prefix:1}" ;;
                *) prefix="${prefix//\\\\/}" ;;
                esac
                while IFS='' read -r word; do
                    [[ -z "${word}" || "${word}" != "${prefix}"* ]] || COMPREPLY+=("${word}")
                done <<<"${1}"
            }

            complete -o filenames
            """
        // Append the functions, because a function's last definition counts.
        return text.replacing("complete -o filenames", with: help)
    }

    private static func zsh(_ script: String) -> String {
        var text = script
        for (alias, name) in aliases {
            text = text.replacing("|\(name)|", with: "|\(alias)|\(name)|")
            text = text.replacing("\"_vaultfs_${words[1]}\"", with: "\"_vaultfs_${words[1]/#\(alias)/\(name)}\"")
            text = text.replacing(
                "            '\(name):", with: "            '\(alias):The same as \(name).'\n            '\(name):")
        }
        let ofParents = parents.map { "'2:command:(\($0.words))'" }.joined(separator: " ")
        text = text.replacing("'*:subcommands:'", with: "'1:command:(\(pages))' \(ofParents)")
        // Keep a `~` at the beginning, and quote everything else that a shell would expand.
        return text.replacing(
            "        __vaultfs_complete \"${completions[@]:0:-1}\"",
            with: """
                        completions=("${(@)completions[1,-2]}")
                        if [[ -n "${QIPREFIX}" ]]; then
                            compadd -- "${completions[@]}"
                        else
                            completions=("${(@q)completions}")
                            compadd -Q -- "${(@)completions/#\\\\\\~\\//~/}"
                        fi
                """)
    }

    private static func fish(_ script: String) -> String {
        var text = script
        let isFirst = "complete -c 'vaultfs' -n '__vaultfs_should_offer_completions_for_positional \"vaultfs\" -eq 1'"
        let help = "complete -c 'vaultfs' -n '__vaultfs_should_offer_completions_for_positional \"vaultfs help\""
        var lines: [String] = []
        for (alias, name) in aliases {
            text = text.replacing("        case '\(name)'\n", with: "        case '\(name)' '\(alias)'\n")
            text = text.replacing(
                "    set -a commands $unparsed_tokens[1]\n",
                with: "    set -a commands (string replace -r '^\(alias)$' \(name) -- $unparsed_tokens[1])\n")
            lines.append("\(isFirst) -fa '\(alias)' -d 'The same as \(name).'")
        }
        lines.append("\(help) -eq 1' -fa '\(pages)'")
        for (name, words) in parents {
            lines.append("\(help) -eq 2; and contains \(name) (commandline -opc)' -fa '\(words)'")
        }
        return text + (text.hasSuffix("\n") ? "" : "\n") + lines.joined(separator: "\n")
    }
}
