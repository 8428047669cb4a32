/// A completion script of ArgumentParser, changed to offer names with spaces and other characters that a shell expands.
enum CompletionScript {
    /// Returns the script with the changes, and any other text as it is.
    static func completed(_ text: String) -> String {
        replacements.reduce(text) { $0.replacing($1.given, with: $1.ours) }
    }

    private static let replacements = [
        // bash: replace `compgen -W`, because it expands the words, and so would run a command in the name of a file.
        (
            given: "__vaultfs_add_completions -W \"$(__vaultfs_custom",
            ours: "__vaultfs_add_words \"$(__vaultfs_custom"
        ),
        (
            given: "complete -o filenames",
            ours: """
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
        ),
        // zsh: keep a `~` at the beginning, and quote everything else that a shell would expand.
        (
            given: "        __vaultfs_complete \"${completions[@]:0:-1}\"",
            ours: """
                    completions=("${(@)completions[1,-2]}")
                    if [[ -n "${QIPREFIX}" ]]; then
                        compadd -- "${completions[@]}"
                    else
                        completions=("${(@q)completions}")
                        compadd -Q -- "${(@)completions/#\\\\\\~\\//~/}"
                    fi
            """
        ),
    ]
}
