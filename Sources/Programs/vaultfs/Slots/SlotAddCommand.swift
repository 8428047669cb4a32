internal import ArgumentParser
internal import Daemon
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

    @Option(
        help: ArgumentHelp(
            "The slot's label, at most 100 bytes. Anybody who can read the vault can read it.", valueName: "text"),
        transform: LabelArgument.parse)
    var label: String?

    @Option(
        help: ArgumentHelp(
            "The slot's expiry: 30d, 12h, or 2027-01-01T00:00:00Z. A policy that vaultfs enforces, not cryptography.",
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

    func validate() throws { try newSecret.validate(beside: common.secret.options.passphrase) }

    func run() throws {
        ProcessSetup.protectMemory()
        try expires?.check()
        let directory = try GivenVault.open(common.vault.path)
        let file = try newSecret.readFile()
        let opened = try common.secret.open(directory, asking: .toChangeSlots)
        let (expires, window) = (expires?.time, playWindow?.window)
        try SlotAuthority(opened.slot).checkMaking(expires: expires, window: window)
        let (secret, recoveryKey) = try newSecret.read(file: file)
        SecretWarning.checkOtherSlots(of: directory.configuration, for: secret)
        let cost = try kdf.cost(for: secret.kind, replacing: nil, beside: directory.configuration.slots)
        let request = SlotRequest(
            secret: secret, cost: cost, label: label ?? "", expires: expires, window: window)
        try NewSlotReport.print("Added", isJSON: common.json, recoveryKey: recoveryKey) { onReady throws(VaultError) in
            try SlotEditor(directory, masterKey: opened.masterKey).add(request, onReady: onReady)
        }
    }
}
