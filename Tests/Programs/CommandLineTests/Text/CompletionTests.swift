import Foundation
import TestSupport
import Testing

/// Completions offered by a shell after the tab key.
@Suite(.timeLimit(.minutes(60))) struct CompletionTests {
    @Test(
        "bash completes commands, options and values",
        arguments: [
            (["mount", "v", "m", "--on-lock", ""], ["refuse", "forget"]),
            (["mount", "v", "m", "--on-lock", "f"], ["forget"]),
            (["view", ""], ["cbc-chunks", "cbc", "openssl", "hls", "mp4"]),
            (["view", "cbc", "s", "m", "--padding", ""], ["pkcs7", "none"]),
            (["view", "cbc", "s", "m", "--cipher", "aes-1"], ["aes-128-cbc", "aes-192-cbc"]),
            (["protect", "un"], ["unless-open", "until-first-unlock"]), (["protect", "none", "let"], ["letter"]),
            (
                ["protect", "none", ""],
                [
                    "complete", "unless-open", "until-first-unlock", "none", "inbox", "$(touch run)", "completion",
                    "letter",
                    "secret", "two words", "vault",
                ]
            ), (["protect", "none", "two\\ w"], ["two words"]), (["protect", "none", "'two w"], ["two words"]),
            (["protect", "none", "~/two\\ w"], ["~/two words"]), (["protect", "none", "$(t"], ["$(touch run)"]),
            (["mount", "v", "m", "--passfile", "~/le"], ["~/letter"]),
            (["slot", "remove", "~/vault", ""], ["1", "2"]), (["slot", "remove", "va\\ult", ""], ["1", "2"]),
            (["mount", ""], ["Photos 2026", "vault"]), (["mount", "vault", ""], ["vault"]),
            (["slot", "list", "Ph"], ["Photos 2026"]), (["forget", ""], ["Photos 2026"]),
            (["slot", "remove", "Photos\\ 2026", ""], ["1", "2"]), (["unlock", "P"], ["Photos 2026"]),
            (["slot", "remove", "vault", ""], ["1", "2"]), (["slot", "change", "vault", "--slot", ""], ["1", "2"]),
            (["view", "openssl", "s", "m", "--md", "sha2"], ["sha224", "sha256"]),
            (["view", "cbc", "s", "m", "--kdf", ""], ["sha256"]), (["export", "--view", "h"], ["hls"]),
            (["mou"], ["mount"]), (["slot", ""], ["--version", "-h", "--help", "list", "add", "remove", "change"]),
            (["mount", "v", "m", "--passf"], ["--passfile"]), (["mount", "v", "m", "--passfile", "let"], ["letter"]),
        ]
    )
    func bash(words: [String], expected: [String]) throws {
        let directory = try TemporaryDirectory()
        try directory.write("letter", "")
        // bash must not run this name.
        try directory.write("$(touch run)", "")
        try directory.write("two words", "")
        try directory.write("secret", "a long passphrase")
        // The vault has a slot for the passphrase and one for the recovery key.
        let options = ["--passfile", directory.appending("secret"), "--scrypt-logn", "10", "--label", "Photos 2026"]
        let list = try TemporaryDirectory()
        let environment = ["XDG_CONFIG_HOME": list.path]
        let vault = directory.appending("vault")
        try Command([Products.binary, "init", vault] + options, environment: environment).run().succeeded()
        // The variables are as readline sets them. The options of complete(1) that the function would query are absent.
        let script = """
            cd '\(directory.path)' || exit
            HOME=$PWD
            PATH="${1%/*}:$PATH"
            "$1" --generate-completion-script bash >completion; shift
            compopt() { :; }
            . ./completion
            COMP_WORDS=(vaultfs "$@") COMP_CWORD=$# COMP_LINE="vaultfs $*" COMP_TYPE=9 COMP_KEY=9
            COMP_POINT=${#COMP_LINE}
            _vaultfs vaultfs "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s\\n' "${COMPREPLY[@]}"
            """
        let command = ["bash", "-c", script, "bash", Products.binary] + words
        let result = try Command(command, environment: environment).run().succeeded()
        #expect(result.output.split(separator: "\n").map(String.init) == expected, "\(result)")
        #expect(!FileManager.default.fileExists(atPath: directory.appending("run")))
    }

    @Test("zsh quotes names")
    func zsh() throws {
        let script = try Command([Products.binary, "--generate-completion-script", "zsh"]).run().succeeded().output
        #expect(script.contains(#"compadd -Q -- "${(@)completions/#\\\~\//~/}""#))
    }
}
