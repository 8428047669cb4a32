internal import ArgumentParser
internal import BackingStore
internal import SystemPackage
internal import VaultStore

/// `vaultfs verify VAULT`
struct VerifyCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify", abstract: "Check every name, header, length and chunk of a vault.",
        discussion: """
            Reads the whole vault and changes nothing. The vault must not be mounted read-write.

            Prints a line for each finding: its kind, the path, and what is wrong. The kinds 'unsealed', 'journaled' \
            and 'leftover' are notes: a crash leaves them, the next mount or use puts them right, and nothing is lost. \
            Every other finding is damage, and makes the exit code \(FailureCode.damageFound.rawValue).
            """)

    /// How long to wait for a daemon that is shutting down.
    private static let lockPatience: Duration = .seconds(10)

    @Argument(help: "The vault directory.")
    var vault: PathArgument

    @Flag(help: "Print JSON.")
    var json = false

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        let directory = try VaultDirectory.open(vault.path)
        try VaultUse.check(directory, sharing: .shared)
        let masterKey = try directory.unlock(with: secret.read(for: directory.configuration))
        try directory.lock(.shared, wait: Self.lockPatience)
        // Only now nobody writes it.
        let locked = try directory.reread()
        let verifier = try Verifier(directory: locked, masterKey: masterKey)
        let report = VerifyReport(vault: vault.path, isJSON: json)
        let totals = try verifier.run(onFinding: report.add, onProgress: report.showProgress)
        report.finish(totals)
        guard totals.damage == 0 else {
            throw CommandFailure(
                .damageFound, "\(vault.path.shown): \(AmountText.counted(totals.damage, "finding")) of damage")
        }
    }
}
