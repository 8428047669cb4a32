internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer
internal import VaultFileSystem
internal import VaultStore

/// A transfer with its report: progress, interruption, and what ends it early. One thread.
struct TransferRun {
    let report: TransferReport
    let interruption: Interruption
    /// Of the vault.
    let lease: VaultLease
    let workspaces: [Workspace]
    /// Called several times a second.
    let whileRunning: () -> Void
    /// As they were typed, for messages.
    let destination: FilePath

    /// Copies, or compares; throws where that had to end early.
    func run<Source: TransferTree, Destination: TransferTree>(
        _ source: (tree: Source, at: TransferTarget<Source>),
        _ destination: (tree: Destination, at: TransferTarget<Destination>), _ options: TransferOptions
    ) throws -> TransferTotals {
        let survey = TransferSurvey()
        let surveying = try startSurvey(survey, source.tree, source.at)
        defer {
            survey.stop()
            surveying?.join()
        }
        let observer = TransferObserver(
            failed: report.addFailure, damaged: report.addDamage,
            // A slot that was renewed goes on.
            isStopped: { [interruption, lease] in
                interruption.signal != nil || lease.isOver && lease.hasEnded()
            })
        let transfer = TreeTransfer(from: source.tree, to: destination.tree, options, observer)
        if options.isComparing { report.beginComparing() }
        do throws(TransferError) {
            if let name = source.at.name {
                try transfer.transferFile(
                    name, in: source.at.directory, as: destination.at.name ?? name, into: destination.at.directory,
                    workspaces
                ) { show($0, of: survey) }
            } else {
                try transfer.transferTree(
                    source.at.directory, into: destination.at.directory, isNew: destination.at.isNew, workspaces
                ) { show($0, of: survey) }
            }
        } catch {
            report.clear()
            throw failure(error)
        }
        return transfer.totals
    }

    private func show(_ totals: TransferTotals, of survey: TransferSurvey) {
        report.showProgress(totals, of: survey)
        whileRunning()
    }

    private func startSurvey<Source: TransferTree>(
        _ survey: TransferSurvey, _ tree: Source, _ place: TransferTarget<Source>
    ) throws(StoreError) -> BackgroundThread? {
        // Nobody would see it.
        guard Console.isStandardErrorTerminal else { return nil }
        if let name = place.name {
            let size = (try tree.find(name, in: place.directory)).flatMap { try? tree.status(of: $0).st_size } ?? 0
            survey.complete(files: 1, bytes: UInt64(max(0, size)))
            return nil
        }
        let directory = place.directory
        return try BackgroundThread { survey.run(tree, below: directory) }
    }

    private func failure(_ error: TransferError) -> CommandFailure {
        switch error {
        case .stopped where interruption.signal == nil:
            CommandFailure(
                .wrongSecret,
                "the time of the slot is over: with the secret of one that opens, the same command goes on where this one was"
            )
        case .stopped: CommandFailure(.failure, "interrupted: the same command goes on where this one was")
        case .unusable(let path, let error):
            CommandFailure(
                .failure,
                "\(path.isEmpty ? destination.shown : FilePath(bytes: path).shown): \(ExportTarget.text(error)): "
                    + "the same command goes on where this one was")
        }
    }

    /// Ends the process as the signal would have, where one has come.
    func endIfInterrupted(_ error: any Error) {
        guard let signal = interruption.signal else { return }
        if let failure = error as? CommandFailure { Console.report(failure.message) }
        Signals.end(by: signal)
    }
}
