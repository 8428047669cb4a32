internal import ArgumentParser
internal import Control

/// `vaultfs status [MOUNTPOINT]`
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the state of a mount, or of all your mounts.",
        discussion: """
            Without MOUNTPOINT: all your mounts, as root every user's. A mount whose daemon has ended is listed, with the \
            command that removes it, and the exit code is \(FailureCode.mountpoint.rawValue). With --json: the status of \
            MOUNTPOINT as an object; without MOUNTPOINT, an array of them. With --prometheus: the counters in the text format \
            that node_exporter's textfile collector reads.
            """)

    @Argument(help: "The mountpoint, or the vault.")
    var mountpoint: PathArgument?

    @Flag(name: .shortAndLong, help: "Show everything: settings, counters, memory.")
    var verbose = false

    @Flag(help: "Print JSON.")
    var json = false

    @Flag(help: "Print metrics for Prometheus.")
    var prometheus = false

    func validate() throws {
        if json && prometheus { throw ValidationError("only one of --json, --prometheus can be given") }
    }

    func run() throws {
        let answers =
            if let mountpoint { [try MountAnswer.ask(mountpoint.path, .status)] } else {
                try MountAnswer.askAll(.status)
            }
        if prometheus, mountpoint == nil {
            let mounts = answers.compactMap {
                if case .answered(.status(let status)) = $0.outcome { status } else { nil }
            }
            return try Console.write(PrometheusText(mounts).text)
        }
        if json, mountpoint == nil { try Console.printJSON(answers) }
        if answers.isEmpty, !json { print("No vault is mounted.") }
        let isTable = mountpoint == nil && answers.count > 1 && !verbose
        if isTable, !json { StatusText.printTable(answers) }
        var failure: CommandFailure?
        for (index, answer) in answers.enumerated() {
            if case .answered(.status(let status)) = answer.outcome {
                if prometheus {
                    try Console.write(PrometheusText([status]).text)
                } else if json {
                    if mountpoint != nil { try Console.printJSON(status) }
                } else if !isTable {
                    if index > 0 { print("") }
                    StatusText.print(status, verbosely: verbose)
                }
            } else {
                let problem = Self.problem(of: answer)
                if mountpoint != nil { throw problem }
                if !json, !isTable { print("\(index > 0 ? "\n" : "")\(problem.message)") }
                // A mount that is only out of reach is no failure: it may be well.
                if problem.code == .mountpoint { failure = failure ?? problem }
            }
        }
        if let failure {
            if isTable || json { Console.report(failure.message) }
            throw ExitCode(failure.code.rawValue)
        }
    }

    private static func problem(of answer: MountAnswer) -> CommandFailure {
        switch answer.outcome {
        case .dead:
            CommandFailure(
                .mountpoint,
                "\(answer.mountpoint): its daemon has ended: 'vaultfs unmount \(answer.mountpoint)' removes the mount")
        case .unreachable(let reason): CommandFailure(.failure, "\(answer.mountpoint): \(reason)")
        case .answered(.error(let failure)):
            CommandFailure(.failure, "\(answer.mountpoint): \(Console.shown(failure.message))")
        case .answered: CommandFailure(.failure, "\(answer.mountpoint): the daemon answered something else")
        }
    }
}
