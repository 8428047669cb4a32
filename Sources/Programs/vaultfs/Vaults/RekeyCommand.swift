internal import ArgumentParser
internal import Daemon
internal import LinuxSystem
internal import SystemPackage
internal import VaultCare
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// `vaultfs rekey VAULT`
struct RekeyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "rekey",
        abstract: "Encrypt everything anew, under a new master key.",
        discussion: """
            Makes a new master key, and encrypts every file, name, link and attribute again, with new keys for each. \
            People who had a secret of this vault, a copy of vaultfs.json or the master key itself can then read nothing \
            in the vault. They can still read what they copied before: backups, snapshots and free blocks of the disk \
            have old ciphertext, which stays under the old key. Old copies of vaultfs.json and old backups do not open the \
            rekeyed vault: make new ones. An old backup can be used only as a whole.

            The secret that you give opens the vault afterwards. All other slots are removed, because they cannot be made \
            again without their secrets. They are listed before anything is changed. Add them again with 'vaultfs slot add'. \
            If a recovery key goes, the command asks on the terminal if it should make a new one.

            The vault must not be mounted. Each file is written beside the old one, which it then replaces: there \
            must be room for the largest files, one for each core. If it is interrupted or killed at any moment, the vault \
            opens with the secret, and the same command continues. Meanwhile the vault can be mounted and written, and is \
            under both keys. A damaged file stays under the old key, and is named on stderr: then the rekey is not \
            finished, and the exit code is \(FailureCode.damageFound.rawValue).
            """)

    @OptionGroup
    var common: VaultArguments

    @Flag(help: "Do not ask before slots go.")
    var yes = false

    @Flag(help: "Even where the slot that is kept expires or has a play window, and nothing opens the vault after it.")
    var force = false

    @Flag(help: "Make a new recovery key, and print it once. Not with --json: use 'vaultfs slot add' afterwards.")
    var newRecoveryKey = false

    func validate() throws {
        if newRecoveryKey && common.json {
            throw ValidationError("--new-recovery-key does not go with --json: use 'vaultfs slot add' afterwards")
        }
    }

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        let directory = try GivenVault.open(common.vault.path)
        let asks = !yes && !directory.configuration.isRekeying && directory.configuration.slots.count > 1
        // Check for a terminal before the user types a secret.
        if asks { _ = try TerminalPrompt(otherwise: "--yes") }
        try VaultUse.check(directory, sharing: .exclusive)
        let only = try common.secret.slot?.id(in: directory.configuration)
        let secret = try common.secret.open(directory, asking: .toChangeSlots).secret
        try directory.lock(.exclusive, wait: VaultUse.lockTimeout)
        // Read the configuration again, because the lock now keeps other processes from writing it.
        let locked = try directory.reread()
        let opened = try common.secret.open(locked, with: secret, only: only)
        let report = RekeyReport(vault: common.vault.path, isJSON: common.json)
        let masterKey: SecretBytes
        if locked.configuration.isRekeying {
            Console.report("\(common.vault.path.shown): a rekey was begun before, and goes on")
            masterKey = opened.masterKey
            if newRecoveryKey { try continueWithNewRecoveryKey(locked, masterKey) }
        } else {
            masterKey = try begin(locked, keeping: opened.slot, secret, opened.masterKey, report)
        }
        try rekey(try locked.reread(), masterKey, report)
    }

    /// Lists the slots to be removed, and begins the rekey.
    private func begin(
        _ vault: VaultDirectory, keeping slot: KeySlot, _ secret: SlotSecret, _ masterKey: SecretBytes,
        _ report: RekeyReport
    ) throws -> SecretBytes {
        let authority = SlotAuthority(slot)
        let going = vault.configuration.slots.filter { $0.id != slot.id }
        for other in going { try authority.checkTouching(other) }
        try RekeyStart.check(vault, keeping: slot, masterKey: masterKey, isForced: force)
        report.announce(going, keeping: slot)
        if !yes, !going.isEmpty {
            let slots = going.count == 1 ? "this slot" : "these \(going.count) slots"
            guard try TerminalPrompt(otherwise: "--yes").confirm("Rekey, without \(slots)? [y/N] ") else {
                throw CommandFailure(.failure, "not rekeyed: nothing was changed")
            }
        }
        let ending = going.filter { $0.kind == .recovery }
        let makesRecoveryKey = try newRecoveryKey || isRecoveryKeyWanted(for: ending, keeping: slot)
        if makesRecoveryKey { try authority.checkMaking(expires: nil, window: nil) }
        let newMaster = try RekeyStart.begin(vault, keeping: slot, secret: secret, masterKey: masterKey)
        if makesRecoveryKey { try addRecoveryKey(to: vault.reread(), newMaster) }
        for slot in ending {
            RecoveryKeyText.reportEnd(of: slot, in: common.vault.path, isReplaced: makesRecoveryKey)
        }
        return newMaster
    }

    /// Offers a new recovery key if the rekey ends one, unless the kept slot is another or is limited.
    private func isRecoveryKeyWanted(for ending: [KeySlot], keeping slot: KeySlot) throws(CommandFailure) -> Bool {
        guard !yes, !common.json, !ending.isEmpty, slot.kind != .recovery, !slot.isLimited else { return false }
        return try TerminalPrompt(otherwise: "--yes").confirm("Make a new recovery key? [y/N] ")
    }

    /// Adds a recovery key, unless an earlier run of the same command has made it.
    private func continueWithNewRecoveryKey(_ vault: VaultDirectory, _ masterKey: SecretBytes) throws {
        if let slot = vault.configuration.slots.first(where: { $0.kind == .recovery }) {
            Console.report("no recovery key was made: slot \(slot.id) has one")
        } else {
            try addRecoveryKey(to: vault, masterKey)
        }
    }

    private func addRecoveryKey(to vault: VaultDirectory, _ masterKey: SecretBytes) throws {
        let key = try NewRecoveryKey.make()
        try NewSlotReport.print("Added", isJSON: false, recoveryKey: key.text) { onReady throws(VaultError) in
            try SlotEditor(vault, masterKey: masterKey).add(SlotRequest(secret: key.secret), onReady: onReady)
        }
    }

    private func rekey(_ vault: VaultDirectory, _ masterKey: SecretBytes, _ report: RekeyReport) throws {
        let (interruption, work) = (try Interruption(), report.work)
        let rekeyer = try Rekeyer(
            directory: vault, masterKey: masterKey, isStopped: { interruption.signal != nil },
            onProblem: { work.add($0, $1, as: "stays under the old key: \($1)") },
            onProgress: { work.showProgress(.init($0)) })
        let outcome: RekeyOutcome
        do {
            outcome = try VaultSession.withWorkspaces(for: vault.configuration) { try rekeyer.run(workspaces: $0) }
        } catch let error as VaultError {
            work.clear()
            guard case .system(let errno, _, _) = error, errno.isNoSpace else { throw error }
            throw CommandFailure(.failure, "\(error.description): make room, and run it again: it goes on where it was")
        }
        try report.finish(outcome, epoch: vault.configuration.epochs.current)
        if outcome.isStopped, let signal = interruption.signal {
            Console.report("interrupted: the same command goes on where this one was")
            Signals.end(by: signal)
        }
        guard outcome.isFinished else { throw report.failure(outcome) }
    }
}
