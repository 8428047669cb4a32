internal import ArgumentParser
internal import Glibc

/// The program. Runs one command, and turns every failure into one line and an exit code.
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
        version: VersionText.line,
        subcommands: [
            InitCommand.self, MountCommand.self, ViewCommand.self, UnmountCommand.self, LockCommand.self,
            UnlockCommand.self, SyncCommand.self, StatusCommand.self, EventsCommand.self, ProtectCommand.self,
            SlotCommand.self, RekeyCommand.self, InfoCommand.self, BenchCommand.self, VerifyCommand.self,
            ImportCommand.self, ExportCommand.self,
        ])

    static let version = "0.1.0"

    static func main() {
        ProcessSetup.completeStandardDescriptors()
        // Writing to a closed pipe or socket is an error to handle.
        signal(SIGPIPE, SIG_IGN)
        // So is a file over its limit (setrlimit(2), RLIMIT_FSIZE).
        signal(SIGXFSZ, SIG_IGN)
        do {
            let arguments = try HelpText.resolve(Console.takingQuiet(from: ProcessArguments.current()))
            if arguments.first == DaemonLaunch.argument { DaemonLaunch.serve() }
            if let unknown = unknownCommand(arguments) { throw CommandFailure(.usage, unknown) }
            var command = try parseAsRoot(arguments)
            try command.run()
        } catch {
            Glibc.exit(report(error))
        }
    }

    /// Names that other programs have for our commands.
    private static let guesses = [
        "passwd": "slot change", "password": "slot change", "list": "status", "ls": "status", "create": "init",
        "open": "mount", "close": "unmount", "version": "--version", "fsck": "verify", "-V": "--version",
    ]

    /// The message for a misspelt command. ArgumentParser would call it an unexpected argument.
    static func unknownCommand(_ arguments: [String]) -> String? {
        var command: any ParsableCommand.Type = Self.self
        for argument in arguments {
            let below = command.configuration.subcommands
            let isOption = argument.hasPrefix("-") && guesses[argument] == nil
            guard !below.isEmpty, argument != "help", !isOption else { return nil }
            guard let next = below.first(where: { $0.configuration.answers(to: argument) }) else {
                let names = below.compactMap { $0.configuration.commandName }
                let words = command == Self.self ? ["vaultfs"] : ["vaultfs", command.configuration.commandName ?? ""]
                let guess =
                    (command == Self.self ? guesses[argument] : nil)
                    ?? NearWord.guess(for: argument, among: names + below.flatMap { $0.configuration.aliases })
                let advice = guess.map { "did you mean '\((words + [$0]).joined(separator: " "))'?" }
                return "unknown command '\(argument)'; \(advice ?? "there are \(names.joined(separator: ", "))")"
            }
            command = next
        }
        return nil
    }

    /// Reports an error on stderr, in one line. Help and version are errors too, and go to stdout.
    private static func report(_ error: any Error) -> Int32 {
        if let failure = CommandFailure(any: error) {
            Console.report(failure.message)
            return failure.code.rawValue
        }
        if exitCode(for: error).isSuccess {
            let text = fullMessage(for: error)
            let format = HelpText.format(in: ProcessArguments.current())
            print(HelpText(text)?.arranged(for: format) ?? CompletionScript.completed(text) ?? text)
            return 0
        }
        if let exit = error as? ExitCode { return exit.rawValue }
        Console.report(oneLine(NearWord.withoutFarGuess(message(for: error))))
        return FailureCode.usage.rawValue
    }

    /// Returns ArgumentParser's message as one line, in lower case, without a full stop.
    static func oneLine(_ message: String) -> String {
        let lines = message.split(whereSeparator: \.isNewline).map { line in
            line.drop { $0 == " " }
        }
        var text = lines.filter { !$0.isEmpty }.joined(separator: "; ")
        while text.last == "." { text.removeLast() }
        // The first word may be a name in capitals.
        guard let first = text.first, text.dropFirst().first?.isUppercase != true else { return text }
        return first.lowercased() + text.dropFirst()
    }
}

extension CommandConfiguration {
    fileprivate func answers(to name: String) -> Bool { commandName == name || aliases.contains(name) }
}
