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
        if let mountpoint {
            try show(MountAnswer.ask(mountpoint.path, .status))
        } else {
            try show(MountAnswer.askAll(.status))
        }
    }

    private func show(_ answer: MountAnswer) throws {
        let status: MountStatus
        do throws(CommandFailure) { status = try answer.status.get() } catch {
            if json { try Console.printJSON(answer) }
            throw error
        }
        if prometheus { return try Console.write(PrometheusText([status]).text) }
        if json { try Console.printJSON(status) } else { StatusText.print(status, verbosely: verbose) }
        try Self.checkProblems([status])
    }

    private func show(_ answers: [MountAnswer]) throws {
        if prometheus {
            return try Console.write(PrometheusText(answers.compactMap { try? $0.status.get() }).text)
        }
        if json {
            try Console.printJSON(answers)
        } else {
            StatusText.print(answers, verbosely: verbose)
        }
        // Only a dead mount is a failure. One that just cannot be reached may be well.
        let dead = answers.compactMap { answer in
            if case .failure(let failure) = answer.status, failure.code == .mountpoint { failure } else { nil }
        }
        for failure in dead.dropLast() { Console.report(failure.message) }
        if let last = dead.last { throw last }
        try Self.checkProblems(answers.compactMap { try? $0.status.get() })
    }

    /// Throws the exit code for problems. The caller has printed them.
    private static func checkProblems(_ mounts: [MountStatus]) throws {
        guard mounts.contains(where: { $0.problems?.isEmpty == false }) else { return }
        throw ExitCode(FailureCode.problems.rawValue)
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
