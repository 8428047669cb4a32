internal import ArgumentParser
internal import Daemon
internal import LinuxSystem
internal import SystemPackage
internal import Transfer

/// The options common to `import` and `export`.
struct TransferArguments: ParsableArguments {
    @Flag(
        help: "Replace files that are there and differ; with --verify, also those that differ only in their contents.")
    var overwrite = false

    @Flag(
        help: ArgumentHelp(
            "Then read everything back from disk, also what was there already, and compare it with the source; "
                + "a wrong copy is removed."))
    var verify = false

    @Flag(help: "Print JSON at the end.")
    var json = false

    var options: TransferOptions {
        var options = TransferOptions()
        options.isReplacing = overwrite
        options.comparesContents = overwrite && verify
        return options
    }
}

/// A transfer with its report, its interruption and the conditions that end it early. One thread.
struct TransferRun {
    let report: TransferReport
    let interruption: Interruption
    var options: TransferOptions
    /// The path as the user typed it, for messages.
    let destination: FilePath
    /// Called by any thread. Returns true if the right to open the vault has ended.
    var hasEnded: @Sendable () -> Bool = { false }
    /// Called several times a second.
    var whileRunning: () -> Void = {}
    var totals = TransferTotals()

    /// Copies, or compares.
    /// - Parameter survey: counts the source; nil for a survey of the source's tree.
    /// - Throws: if the transfer ended early.
    mutating func run<Source: TransferTree, Destination: TransferTree>(
        _ from: TransferTarget<Source>, _ to: TransferTarget<Destination>, _ workspaces: [Source.Workspace],
        survey count: (@Sendable (TransferSurvey) -> Void)? = nil
    ) throws where Source.Workspace == Destination.Workspace {
        let survey = TransferSurvey()
        let count = count ?? { $0.run(from.tree, from.directory, from.name) }
        let surveying = Console.isStandardErrorTerminal ? try BackgroundThread { count(survey) } : nil
        defer {
            survey.stop()
            surveying?.join()
        }
        let work = report.work
        if options.isComparing { work.beginVerifying() } else { options.beginCopying() }
        let transfer = TreeTransfer(
            from: from.tree, to: to.tree, options, failed: report.addFailure, damaged: work.addDamage,
            isStopped: { [interruption, hasEnded] in interruption.signal != nil || hasEnded() })
        let whileWaiting = { [whileRunning] totals in
            work.showProgress(.init(totals, of: survey.result))
            whileRunning()
        }
        do throws(TransferError) {
            if let name = from.name {
                try transfer.transferFile(
                    name, in: from.directory, as: to.name ?? name, into: to.directory, workspaces,
                    whileWaiting: whileWaiting)
            } else {
                try transfer.transferTree(
                    from.directory, into: to.directory, isNew: to.isNew, workspaces, whileWaiting: whileWaiting)
            }
        } catch {
            work.clear()
            throw failure(error, (options.isComparing ? totals : transfer.totals).notKept.text)
        }
        if options.isComparing { totals.add(compared: transfer.totals) } else { totals = transfer.totals }
    }

    /// Returns the failure of a transfer that ended early.
    /// - Parameter loss: the attributes not kept, named here because the next run skips the objects that exist.
    private func failure(_ error: TransferError, _ loss: String?) -> CommandFailure {
        let advice = "the same command goes on where this one was" + (loss.map { "; \($0)" } ?? "")
        switch error {
        case .stopped where interruption.signal == nil:
            return CommandFailure(
                .wrongSecret, "the slot has expired: with the secret of a valid slot, \(advice)")
        case .stopped: return CommandFailure(.failure, "interrupted: \(advice)")
        case .unusable(let path, let error):
            let shown = path.isEmpty ? destination.shown : FilePath(bytes: path).shown
            return CommandFailure(.failure, "\(shown): \(error.reason): \(advice)")
        }
    }
}

extension Interruption {
    /// Runs `body`. If a signal has arrived, reports the failure and ends the process as the signal would have.
    func perform(_ body: () throws -> Void) throws {
        do {
            try body()
        } catch {
            guard let signal else { throw error }
            if let failure = error as? CommandFailure { Console.report(failure.message) }
            Signals.end(by: signal)
        }
    }
}
