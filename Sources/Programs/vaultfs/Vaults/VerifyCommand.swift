internal import ArgumentParser
internal import Control
internal import Daemon
internal import LinuxSystem
internal import SystemPackage
internal import VaultCare
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// `vaultfs verify VAULT`
struct VerifyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify", abstract: "Check every name, header, length and chunk of a vault, and repair it.",
        discussion: """
            Reads the whole vault and changes nothing. While it is mounted, only damage that is found twice is reported. \
            The note 'busy' names an object that changed during every check. The exit code is then \
            \(FailureCode.undetermined.rawValue) if nothing else was found.

            Prints a line for each finding: its kind, the path, and a description. The kinds 'unsealed', 'logged', 'tornTail', \
            'leftover' and 'incomplete' are notes: a crash leaves them, the next mount or use corrects them, and no \
            durable data is lost. 'foreign' is a note, too, and names another program's file, such as a sync client's. The \
            note 'conflict' names a conflict copy that a sync client made. Every finding that is no note is damage, with the \
            exit code \(FailureCode.damageFound.rawValue).

            With --repair, prints a line for each possible repair, asks, makes the repairs, and verifies again. The \
            vault must not be mounted. It applies the log, authenticates lengths, and cuts each file to the \
            length in its header or of its intact part. It moves objects without a name to lost+found in the vault's root, with a \
            list of the old entries, and keeps there the intact parts of what it cuts off or frees. It never deletes \
            damaged data: damaged chunks stay, and reading them stays an error. The exit code is then 0 if \
            no damage is left and all repairs were made, \(FailureCode.damageFound.rawValue) if damage is left, and \
            \(FailureCode.failure.rawValue) if only another repair could not be made. If it is killed, a second run continues.
            """)

    @OptionGroup
    var common: VaultArguments

    @Flag(help: "Make the possible repairs, after asking.")
    var repair = false

    @Flag(help: "Other programs' files count as damage.")
    var strict = false

    @Flag(name: .shortAndLong, help: "List every file whose length cannot be checked yet.")
    var verbose = false

    @Flag(help: "With --repair, do not ask.")
    var yes = false

    func validate() throws {
        if yes && !repair { throw ValidationError("--yes goes with --repair") }
    }

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        // Check for a terminal before hours of reading.
        if repair && !yes { _ = try TerminalPrompt(otherwise: "--yes") }
        let (directory, masterKey, verifier) = try openVault()
        let report = VerifyReport(
            vault: common.vault.path, isJSON: common.json, isVerbose: verbose,
            unsealedReason: Self.unsealedReason(directory, verifier))
        var repairable: [VerifierFinding] = []
        let totals = try verifier.run(
            onFinding: { finding in
                report.add(finding)
                if repair && finding.remedy != nil { repairable.append(finding) }
            }, onProgress: report.showProgress)
        report.end("summary", totals)
        let misfit = verifier.keys.misfit
        // With the wrong keys everything looks damaged, so repair nothing.
        if misfit != nil { repairable = [] }
        let left = repair ? try repaired(repairable, in: directory, masterKey, report) ?? totals : totals
        if repair { directory.releaseWriterLock() }
        report.finish(isRekeying: directory.configuration.isRekeying)
        if let misfit {
            throw failure(.damageFound, "\(misfit): put the vault's newest vaultfs.json there; nothing was changed")
        }
        if let failure = outcome(left, report) { throw failure }
    }

    /// Opens a slot and locks the vault, except for a check of a vault in use.
    private func openVault() throws -> (VaultDirectory, masterKey: SecretBytes, Verifier) {
        let directory = try GivenVault.open(common.vault.path)
        let sharing: VaultDirectory.Sharing = repair ? .exclusive : .shared
        var isInUse = try !repair && VaultUse.isMountedForWriting(directory)
        // True while the daemon completes the remains of an unclean end.
        let isCompleting = isInUse && VaultUse.find(directory)?.status?.isCompleting ?? false
        if !isInUse { try VaultUse.check(directory, sharing: sharing) }
        let masterKey = try common.secret.open(directory).masterKey
        if !isInUse { isInUse = try !locks(directory, sharing) }
        // Read again, because the lock now keeps writers out. In a vault in use, only damage found twice counts.
        let locked = try directory.reread()
        if repair && !locked.isOnReadOnlyStore { try locked.finishRekeyStep(masterKey: masterKey) }
        let verifier = try Verifier(
            directory: locked, masterKey: masterKey, isInUse: isInUse, isCompleting: isCompleting)
        return (locked, masterKey, verifier)
    }

    private static func unsealedReason(_ directory: VaultDirectory, _ verifier: Verifier) -> String {
        if verifier.isInUse { return " that the mount has not sealed yet" }
        return directory.wasLeftUncleanHere
            ? ", as after a kill, a power cut or on a full disk" : ", as in a copy of a mounted vault"
    }

    private func outcome(_ left: VerifierTotals, _ report: VerifyReport) -> CommandFailure? {
        if left.damage > 0 {
            let findings = AmountText.counted(left.damage, "finding")
            let advice =
                report.remediable > 0
                ? "repair it with --repair, or put it back from a backup"
                : "put it back from a backup, or save the rest of it with 'vaultfs export --damaged'"
            return failure(.damageFound, "\(findings) of damage\(repair ? " left" : ""): \(advice)")
        }
        if strict && report.foreign > 0 {
            return failure(.damageFound, "\(AmountText.counted(report.foreign, "file")) of other programs")
        }
        if report.uncertain > 0 {
            let objects = AmountText.counted(report.uncertain, "object")
            return failure(
                .undetermined, "\(objects) changed during every check: verify again, or when it is not mounted")
        }
        if report.failures == 0 { return nil }
        return failure(.failure, "\(AmountText.counted(report.failures, "repair")) could not be made")
    }

    private func failure(_ code: FailureCode, _ message: String) -> CommandFailure {
        CommandFailure(code, "\(common.vault.path.shown): \(message)")
    }

    /// - Returns: false if a process that this user cannot ask has the vault. Only a check may then go on.
    private func locks(_ directory: VaultDirectory, _ sharing: VaultDirectory.Sharing) throws(VaultError) -> Bool {
        do throws(VaultError) {
            // Wait only briefly for a check, which does not need the end of a daemon that is shutting down.
            try directory.lock(sharing, wait: repair ? VaultUse.lockTimeout : .seconds(2))
            return true
        } catch {
            guard !repair, case .inUse = error, try !directory.reread().configuration.isRekeying else { throw error }
            return false
        }
    }

    /// Repairs and verifies again. Returns nil without possible repairs, or if the user has declined.
    private func repaired(
        _ findings: [VerifierFinding], in directory: VaultDirectory, _ masterKey: SecretBytes, _ report: VerifyReport
    ) throws -> VerifierTotals? {
        for finding in findings { report.announce(finding) }
        guard !findings.isEmpty, try isWanted(findings.count) else {
            report.endRepairs(of: findings, done: false, failures: [])
            return nil
        }
        guard !directory.isOnReadOnlyStore else {
            throw failure(.failure, "cannot repair: the store is mounted read-only")
        }
        let repairer = try Repairer(directory: directory, masterKey: masterKey)
        let failures = try repairer.run(findings) { done in report.showProgress(done, of: findings.count) }
        report.endRepairs(of: findings, done: true, failures: failures)
        let again = try Verifier(directory: directory, masterKey: masterKey)
        var isComplete = true
        let left = try again.run(
            onFinding: { finding in
                report.add(finding)
                // An unreadable object may contain more incomplete ones.
                if [.incomplete, .unreadable].contains(finding.kind) { isComplete = false }
            }, onProgress: report.showProgress)
        report.end("leftSummary", left)
        if isComplete { directory.clearUncleanEnd() }
        return left
    }

    private func isWanted(_ count: Int) throws(CommandFailure) -> Bool {
        if yes { return true }
        return try TerminalPrompt(otherwise: "--yes").confirm(
            "Make \(count == 1 ? "this repair" : "these \(count) repairs")? [y/N] ")
    }
}
