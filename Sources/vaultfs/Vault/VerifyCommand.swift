internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// `vaultfs verify VAULT`
struct VerifyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify", abstract: "Check every name, header, length and chunk of a vault, and repair it.",
        discussion: """
            Reads the whole vault and changes nothing. While it is mounted, only damage is reported, and only what is \
            found twice; the note 'busy' names what changed at every look, and makes the exit code \
            \(FailureCode.notTold.rawValue) where nothing else was found.

            Prints a line for each finding: its kind, the path, and what is wrong. The kinds 'unsealed', 'journaled', \
            'leftover' and 'incomplete' are notes: a crash leaves them, the next mount or use puts them right, and nothing \
            that was made durable is lost. \
            Every other finding is damage, and makes the exit code \(FailureCode.damageFound.rawValue).

            With --repair, says what can be done about them, a line each, asks, does it, and verifies once more; the \
            vault must not be mounted. It puts records of the journal in place, seals files, and ends each where its \
            header or what is there of it says; what has lost its name it moves to lost+found in the vault's root, with a \
            list of the old entries, and what verifies of what it cuts off or frees it keeps there. \
            What does not authenticate it never deletes: damaged chunks stay, and reading them stays an error. The \
            exit code is then 0 where no damage is left and all was done, \(FailureCode.damageFound.rawValue) where \
            damage is left, and \(FailureCode.failure.rawValue) where only something else could not be put right. \
            Killed at any moment, a second run goes on.
            """)

    /// How long to wait for a daemon that is shutting down; a check can do without its end.
    private var lockPatience: Duration { .seconds(repair ? 10 : 2) }

    @OptionGroup
    var common: VaultArguments

    @Flag(help: "Put right what can be, after asking.")
    var repair = false

    @Flag(help: "With --repair, do not ask.")
    var yes = false

    func validate() throws {
        if yes && !repair { throw ValidationError("--yes goes with --repair") }
    }

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        // Not after hours of reading.
        if repair && !yes { _ = try TerminalQuestion(otherwise: "--yes") }
        let directory = try VaultDirectory.open(common.vault.path)
        let sharing: VaultDirectory.Sharing = repair ? .exclusive : .shared
        var isInUse = try !repair && VaultUse.isMountedForWriting(directory)
        let isCompleting = isInUse && VaultUse.isCompleting(directory)
        if !isInUse { try VaultUse.check(directory, sharing: sharing) }
        let masterKey = try common.slots.open(
            directory, with: common.secret.read(for: directory.configuration)
        ).masterKey
        if !isInUse { isInUse = try !locks(directory, sharing) }
        // Only now nobody writes it, unless it is in use: then only what is found twice counts.
        let locked = try directory.reread()
        if repair && !locked.isOnReadOnlyStore { try locked.finishRekeyStep(masterKey: masterKey) }
        let report = VerifyReport(vault: common.vault.path, isJSON: common.json)
        var repairable: [VerifierFinding] = []
        let verifier = try Verifier(
            directory: locked, masterKey: masterKey, isInUse: isInUse, isCompleting: isCompleting)
        let totals = try verifier.run(
            onFinding: { finding in
                report.add(finding)
                if repair && finding.remedy != nil { repairable.append(finding) }
            }, onProgress: report.showProgress)
        report.endFindings(totals)
        let misfit = verifier.keys.misfit
        // To keys that are not the vault's all is damaged: nothing is put right by them.
        if misfit != nil { repairable = [] }
        let left = repair ? try repaired(repairable, in: locked, masterKey, report) ?? totals : totals
        if repair { locked.releaseWriterLock() }
        report.finish(isRekeying: locked.configuration.isRekeying)
        if let misfit {
            throw CommandFailure(
                .damageFound,
                "\(common.vault.path.shown): \(misfit): put the vault's newest vaultfs.json there; nothing was changed")
        }
        guard left.damage == 0 else {
            throw CommandFailure(
                .damageFound,
                "\(common.vault.path.shown): \(AmountText.counted(left.damage, "finding")) of damage\(repair ? " left" : "")"
            )
        }
        if report.untold > 0 {
            let what = AmountText.counted(report.untold, "object")
            throw CommandFailure(
                .notTold,
                "\(common.vault.path.shown): \(what) changed at every look: verify again, or when it is not mounted")
        }
        if report.failures > 0 {
            throw CommandFailure(
                .failure,
                "\(common.vault.path.shown): \(AmountText.counted(report.failures, "repair")) could not be made")
        }
    }

    /// - Returns: false for a check beside somebody who has the vault and does not tell for what, as another user's daemon.
    private func locks(
        _ directory: VaultDirectory, _ sharing: VaultDirectory.Sharing
    ) throws(VaultError) -> Bool {
        do throws(VaultError) {
            try directory.lock(sharing, wait: lockPatience)
            return true
        } catch {
            guard !repair, case .inUse = error, try !directory.reread().configuration.isRekeying else { throw error }
            return false
        }
    }

    /// Repairs and verifies again; nil where there is nothing to repair, or it was not wanted.
    private func repaired(
        _ findings: [VerifierFinding], in directory: VaultDirectory, _ masterKey: SecretBytes, _ report: VerifyReport
    ) throws -> VerifierTotals? {
        for finding in findings { report.announce(finding) }
        guard !findings.isEmpty, try isWanted(findings.count) else {
            report.endRepairs(done: false, failures: [])
            return nil
        }
        guard !directory.isOnReadOnlyStore else {
            throw CommandFailure(.failure, "\(common.vault.path.shown): cannot repair: the store is mounted read-only")
        }
        let repairer = try Repairer(directory: directory, masterKey: masterKey)
        let failures = try repairer.run(findings) { done in report.showProgress(done, of: findings.count) }
        report.endRepairs(done: true, failures: failures)
        let again = try Verifier(directory: directory, masterKey: masterKey)
        var isComplete = true
        let left = try again.run(
            onFinding: { finding in
                report.add(finding)
                // An unreadable object may hold more incomplete ones.
                if [.incomplete, .unreadable].contains(finding.kind) { isComplete = false }
            }, onProgress: report.showProgress)
        report.endLeft(left)
        if isComplete { directory.noteCompletion() }
        return left
    }

    private func isWanted(_ count: Int) throws(CommandFailure) -> Bool {
        if yes { return true }
        return try TerminalQuestion(otherwise: "--yes").ask(
            "Make \(count == 1 ? "this repair" : "these \(count) repairs")? [y/N] ")
    }
}
