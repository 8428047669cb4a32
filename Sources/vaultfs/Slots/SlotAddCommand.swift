internal import ArgumentParser
internal import VaultFormat
internal import VaultStore

/// `vaultfs slot add VAULT`
struct SlotAddCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "add", abstract: "Add a slot with a secret of its own.",
        discussion: """
            Needs a secret that opens the vault, and a new one. Each is asked for on the terminal, the new passphrase \
            twice, or read from the source in the options.

            The secret of a slot that ends cannot add a slot that may open longer.
            """)

    @OptionGroup
    var common: VaultArguments

    @Option(help: ArgumentHelp("The slot's label. Anybody who can read the vault can read it.", valueName: "text"))
    var label: LabelArgument?

    @Option(
        help: ArgumentHelp(
            "The slot's end: 30d, 12h, or 2027-01-01T00:00:00Z. A policy that vaultfs enforces, not cryptography.",
            valueName: "time"), transform: ExpiryArgument.parse)
    var expires: ExpiryArgument?

    @Option(
        help: ArgumentHelp(
            "The time that the slot opens after its first use (mount, unlock, import or export): 48h, 30min. Also a policy.",
            valueName: "duration"), transform: PlayWindowArgument.parse)
    var playWindow: PlayWindowArgument?

    @OptionGroup(title: "New secret")
    var newSecret: NewSecretOptions

    @OptionGroup
    var kdf: KdfOptions

    func validate() throws {
        try newSecret.validate(beside: common.secret)
    }

    func run() throws {
        ProcessSetup.protectMemory()
        let expires = try expires?.time()
        let directory = try VaultDirectory.open(common.vault.path)
        let (masterKey, opener) = try common.slots.open(
            directory, with: common.secret.read(for: directory.configuration))
        let window = try playWindow?.window()
        try SlotAuthority(opener).checkMaking(expires: expires, window: window)
        let new = try newSecret.read()
        let request = SlotRequest(
            secret: new.secret, cost: try cost(for: new.secret.kind, beside: directory.configuration.slots),
            label: label?.text ?? "", expires: expires, window: window)
        let report = NewSlotReport(what: "Added", isJSON: common.json, recoveryKey: new.recoveryKey)
        let slot = try report.whileDeriving { () throws(VaultError) in
            try SlotEditor(directory, masterKey: masterKey).add(request, onReady: report.showRecoveryKey)
        }
        try report.finish(slot)
    }

    /// Reports on stderr if another passphrase of the vault costs more.
    private func cost(for kind: SlotKind, beside slots: [KeySlot]) throws -> ScryptCost {
        guard kind == .passphrase else { return .standard }
        let others = slots.compactMap(\.kdf.cost)
        guard let asked = try kdf.cost() else { return .beside(others) }
        KdfOptions.reportCheaper(asked, than: others)
        return asked
    }
}
