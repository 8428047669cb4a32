internal import ArgumentParser
internal import Control

/// `vaultfs status [MOUNTPOINT]`
struct StatusCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "status", abstract: "Show the state of a mount, or of all your mounts.",
        discussion: """
            Without MOUNTPOINT: all your mounts, as root every user's. A mount whose daemon has ended is listed, with the \
            command that removes it, and the exit code is \(FailureCode.mountpoint.rawValue). If a mount has problems, it is \
            \(FailureCode.problems.rawValue). With --json: the status of MOUNTPOINT as an object; without MOUNTPOINT, an \
            array of them. With --prometheus: the counters in the text format that node_exporter's textfile collector \
            reads; problems are a metric then, and the exit code is 0.
            """)

    @Argument(help: "The mountpoint, or the vault.", completion: Completions.mounts)
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
        let answers = try mountpoint.map { [try MountAnswer.ask($0.path, .status)] } ?? MountAnswer.askAll(.status)
        let mounts = answers.compactMap { try? $0.status.get() }
        let failures = answers.compactMap { answer -> CommandFailure? in
            guard case .failure(let failure) = answer.status else { return nil }
            // Of all mounts, only a dead one is a failure. One that just cannot be reached may be well.
            return mountpoint != nil || failure.code == .mountpoint ? failure : nil
        }
        let isShown = mountpoint == nil || failures.isEmpty
        if prometheus && isShown { return try Console.write(PrometheusText(mounts).text) }
        if json {
            if mountpoint == nil { try Console.printJSON(answers) } else { try Console.printJSON(answers.first) }
        } else if isShown {
            StatusText.print(answers, verbosely: verbose)
        }
        for failure in failures.dropLast() { Console.report(failure.message) }
        if let last = failures.last { throw last }
        // The problems have been printed, so only the exit code remains.
        guard mounts.allSatisfy({ $0.problems?.isEmpty ?? true }) else {
            throw ExitCode(FailureCode.problems.rawValue)
        }
    }
}

extension MountAnswer {
    /// The mount's status. The failure's code is `mountpoint` if the daemon has died, `failure` if it sends no status.
    var status: Result<MountStatus, CommandFailure> {
        switch outcome {
        case .answered(.status(let status)): .success(status)
        case .dead: .failure(.dead(at: mountpoint))
        case .unreachable(let reason): .failure(CommandFailure(.failure, "\(mountpoint): \(reason)"))
        case .answered(.error(let failure)):
            .failure(CommandFailure(.failure, "\(mountpoint): \(Console.shown(failure.message))"))
        case .answered: .failure(CommandFailure(.failure, "\(mountpoint): the daemon answered something else"))
        }
    }
}
