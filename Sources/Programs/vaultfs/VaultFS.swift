internal import ArgumentParser
internal import CBuild
internal import Daemon
internal import FuseSession
internal import Glibc
internal import LinuxSystem
internal import VaultCrypto

/// The program. Runs one command, and turns every failure into a message and an exit code.
@main
struct VaultFS: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "vaultfs",
        abstract: "Encrypted directories, mounted as plaintext for any program.",
        discussion: """
            Make a vault, mount it, use it, unmount it:

              vaultfs init ~/Vault
              vaultfs mount ~/Vault ~/Private
              vaultfs unmount ~/Private

            Every command takes -q or --quiet: it then prints failures, warnings and what was asked for, and nothing else.

            Exit codes:
            \(FailureCode.table)
            """,
        version: versionLine,
        subcommands: [
            InitCommand.self, ListCommand.self, ForgetCommand.self, MountCommand.self, ViewCommand.self,
            UnmountCommand.self, LockCommand.self,
            UnlockCommand.self, SyncCommand.self, StatusCommand.self, EventsCommand.self, ProtectCommand.self,
            SlotCommand.self, RekeyCommand.self, InfoCommand.self, BenchCommand.self, VerifyCommand.self,
            ImportCommand.self, ExportCommand.self,
        ])

    static let version = "0.1.0"

    /// `vaultfs 0.1.0 (commit 1a2b3c4d5e6f, libfuse 3.14.0, OpenSSL 3.0.17)`. Scripts read its second word.
    private static var versionLine: String {
        let commit = String(cString: vaultfs_build_commit())
        return "vaultfs \(version) (\(commit.isEmpty ? "" : "commit \(commit), ")libfuse \(FuseVersion.text), "
            + "OpenSSL \(CryptoVersion.text))"
    }

    static func main() {
        ProcessSetup.begin()
        do {
            let arguments = Console.takingQuiet(from: ProcessArguments.current())
            if arguments.first == DaemonLaunch.argument { DaemonLaunch.serve(VaultOrView.self) }
            if let unknown = unknownCommand(arguments) { throw CommandFailure(.usage, unknown) }
            var command = try parseAsRoot(arguments)
            if command is any MountingCommand {
                // Parse again, because the values in `-o` count as options, and an option's last value counts.
                let arguments = try (command as? MountCommand)?.recalled(before: arguments) ?? arguments
                command = try parseAsRoot(arguments)
                let end = arguments.firstIndex(of: "--") ?? arguments.endIndex
                let options = (command as? any MountingCommand)?.mount.options ?? []
                let ours = try MountOptionList(options).ours
                if !ours.isEmpty { command = try parseAsRoot(Array(arguments[..<end]) + ours + arguments[end...]) }
            }
            try command.run()
        } catch {
            Glibc.exit(report(error))
        }
    }

    /// Other programs' names for our commands. gocryptfs spells its own as options, such as `-init`.
    private static let guesses = [
        "passwd": "slot change", "password": "slot change", "ls": "list", "create": "init",
        "open": "mount", "close": "unmount", "version": "--version", "V": "--version", "fsck": "verify",
        "speed": "bench",
    ]

    /// Returns the message for a misspelt command, which ArgumentParser would call an unexpected argument.
    static func unknownCommand(_ arguments: [String]) -> String? {
        var command: any ParsableCommand.Type = Self.self
        for argument in arguments {
            let below = command.configuration.subcommands
            guard !below.isEmpty, argument != "help" else { return nil }
            if let next = below.first(where: { $0.configuration.answers(to: argument) }) {
                command = next
                continue
            }
            let isProgram = command == Self.self
            let names = below.compactMap { $0.configuration.commandName }
            let word = String(argument.drop { $0 == "-" })
            var guess = isProgram ? guesses[word] ?? names.first { $0 == word } : nil
            if argument.hasPrefix("-") {
                // Leave it to the parser, which knows the program's own options and refuses others.
                if guess == nil || guess == argument { return nil }
            } else {
                // Try this guess first, because a vault may have the name of another guess.
                guess =
                    (isProgram ? mountCommand(arguments) : nil) ?? guess
                    ?? (names + below.flatMap { $0.configuration.aliases })
                    .first { Misspelling.isLikely(argument, of: $0) }
            }
            let words = isProgram ? ["vaultfs"] : ["vaultfs", command.configuration.commandName ?? ""]
            let advice = guess.map { "did you mean '\((words + [$0]).joined(separator: " "))'?" }
            let given = shown(ProcessArguments.bytes(of: argument))
            return "unknown command '\(given)'; \(advice ?? "there are \(names.joined(separator: ", "))")"
        }
        return nil
    }

    /// Returns `mount Vault Private` if the arguments are a directory and a path, as for gocryptfs.
    private static func mountCommand(_ arguments: [String]) -> String? {
        let paths = arguments.prefix(2).compactMap { PathArgument(argument: $0)?.path }
        guard paths.count == 2, !arguments[1].hasPrefix("-"),
            (try? Descriptor(path: paths[0], flags: O_RDONLY | O_DIRECTORY)) != nil
        else { return nil }
        return (["mount"] + paths.map(\.quotedForShell)).joined(separator: " ")
    }

    /// Reports an error on stderr. Help and version, which are errors to the parser, go to stdout.
    private static func report(_ error: any Error) -> Int32 {
        if let failure = CommandFailure(any: error) {
            Console.report(failure.message)
            return failure.code.rawValue
        }
        let text = fullMessage(for: error)
        if exitCode(for: error).isSuccess {
            print(CompletionScript.completed(text))
            return 0
        }
        if let exit = error as? ExitCode { return exit.rawValue }
        // The parser does not say why `PathArgument` refuses a path. A path may follow a URI, so look for `=~/`, too.
        let reasoned = text.replacing(/The value '(.*=)?~['\/].*/) { match in
            "\(match.output.0): the shell has not replaced ~ by your home directory: write $HOME, or ./~ for a file of "
                + "that name"
        }
        Console.report(String(reasoned.trimmingPrefix("Error: ")))
        return FailureCode.usage.rawValue
    }
}

extension CommandConfiguration {
    fileprivate func answers(to name: String) -> Bool { commandName == name || aliases.contains(name) }
}
