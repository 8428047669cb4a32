internal import ArgumentParser
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

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
            InitCommand.self, ListCommand.self, ForgetCommand.self, MountCommand.self, ViewCommand.self,
            UnmountCommand.self, LockCommand.self,
            UnlockCommand.self, SyncCommand.self, StatusCommand.self, EventsCommand.self, ProtectCommand.self,
            SlotCommand.self, RekeyCommand.self, InfoCommand.self, BenchCommand.self, VerifyCommand.self,
            ImportCommand.self, ExportCommand.self,
        ])

    static let version = "0.1.0"

    static func main() {
        ProcessSetup.begin()
        do {
            let arguments = try HelpText.resolve(Console.takingQuiet(from: ProcessArguments.current()))
            if arguments.first == DaemonLaunch.argument { DaemonLaunch.serve(MountedSource.self) }
            if let unknown = unknownCommand(arguments) { throw CommandFailure(.usage, unknown) }
            var command = try parseAsRoot(arguments)
            if let mounting = command as? any MountingCommand {
                // Parse again, because the values in `-o` count as options, and an option's last value counts.
                let arguments = try mounting.recalled(before: arguments)
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
                    ?? NearWord.guess(for: argument, among: names + below.flatMap { $0.configuration.aliases })
            }
            let words = isProgram ? ["vaultfs"] : ["vaultfs", command.configuration.commandName ?? ""]
            let advice = guess.map { "did you mean '\((words + [$0]).joined(separator: " "))'?" }
            return "unknown command '\(argument)'; \(advice ?? "there are \(names.joined(separator: ", "))")"
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

    /// Reports an error on stderr, in one line. Help and version, which are errors to the parser, go to stdout.
    private static func report(_ error: any Error) -> Int32 {
        let arguments = ProcessArguments.current()
        if let failure = CommandFailure(any: error) {
            // Show a path whole if it can exist.
            let cut = failure.code == .usage ? arguments : arguments.filter { $0.utf8.count >= PATH_MAX }
            Console.report(UsageText.showing(cut, in: failure.message))
            return failure.code.rawValue
        }
        if exitCode(for: error).isSuccess {
            let text = fullMessage(for: error)
            let format = HelpText.format(in: arguments)
            print(HelpText(text)?.arranged(for: format) ?? CompletionScript.completed(text) ?? text)
            return 0
        }
        if let exit = error as? ExitCode { return exit.rawValue }
        let error = unknownOption(hiddenBy: error) ?? error
        let text = UsageText.showing(arguments, in: NearWord.withoutFarGuess(message(for: error)))
        Console.report(UsageText.line(text) + usage(after: error))
        return FailureCode.usage.rawValue
    }

    /// Returns the error about an unknown option. The parser reports a missing argument first, so give it more of them.
    private static func unknownOption(hiddenBy error: any Error) -> (any Error)? {
        guard message(for: error).hasPrefix("Missing expected argument") else { return nil }
        let arguments = Console.takingQuiet(from: ProcessArguments.current())
        for count in 1...3 {
            do { _ = try parseAsRoot(arguments + Array(repeating: "x", count: count)) } catch {
                if message(for: error).hasPrefix("Unknown option") { return error }
            }
        }
        return nil
    }

    /// Returns ` of 'vaultfs mount [<options>] <vault> <mountpoint>'` if an argument is missing, or advice after a
    /// second mountpoint.
    private static func usage(after error: any Error) -> String {
        let lines = fullMessage(for: error).split(whereSeparator: \.isNewline)
        guard let usage = lines.first(where: { $0.hasPrefix("Usage: ") })?.dropFirst("Usage: ".count) else { return "" }
        if message(for: error).hasPrefix("Missing expected argument") { return " of '\(usage)'" }
        let isSecond = message(for: error).contains("nexpected argument") && usage.contains("[<mountpoint>] [--all]")
        return isSecond ? "; give one mountpoint, or --all" : ""
    }
}

extension CommandConfiguration {
    fileprivate func answers(to name: String) -> Bool { commandName == name || aliases.contains(name) }
}
