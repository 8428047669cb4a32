internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// The source of a passphrase: one of these options, or the terminal.
struct PassphraseOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Read the passphrase from a file.", valueName: "file"))
    var passfile: PathArgument?

    @Option(help: ArgumentHelp("Run a command with /bin/sh and take its output as the passphrase.", valueName: "cmd"))
    var extpass: String?

    @Option(
        name: .customLong("passphrase-fd"),
        help: ArgumentHelp("Read the passphrase from a file descriptor.", valueName: "n"))
    var passphraseDescriptor: Int32?

    @Option(
        help: ArgumentHelp(
            "Take the passphrase from the kernel's keyrings: a key of type user, by its description (keyctl(1)).",
            valueName: "description"))
    var keyring: String?

    @Option(
        help: ArgumentHelp(
            "Take the passphrase from a systemd credential: the file of this name in $CREDENTIALS_DIRECTORY.",
            valueName: "name"))
    var credential: String?

    /// The sources given.
    var given: [SecretSource] {
        [
            passfile.map { SecretSource("--passfile", .file($0.path)) },
            extpass.map { SecretSource("--extpass", .command($0)) },
            passphraseDescriptor.map { SecretSource("--passphrase-fd", .descriptor($0)) },
            keyring.map { SecretSource("--keyring", .key($0)) },
            credential.map { SecretSource("--credential", .credential($0)) },
        ].compactMap { $0 }
    }

    func validate() throws { try SecretSource.check(given) }

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws {
        passfile = try list.value("passfile") ?? passfile
        extpass = try list.value("extpass") ?? extpass
        passphraseDescriptor = try list.value("passphrase_fd", otherwise: "is not a number") ?? passphraseDescriptor
        keyring = try list.value("keyring") ?? keyring
        credential = try list.value("credential") ?? credential
        try validate()
    }

    /// Reads the passphrase, from the terminal if there is no source.
    func read() throws(CommandFailure) -> SlotSecret {
        if let source = given.first { return try source.read() }
        return try TerminalPrompt.ask("Passphrase: ").secret(.passphrase)
    }
}

/// The sources of other secrets that open a vault.
struct SecretOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Use a keyfile (at least 32 bytes) instead of a passphrase.", valueName: "file"))
    var keyfile: PathArgument?

    @Option(
        help: ArgumentHelp(
            "Run a command with /bin/sh that reads the vault and its slots on stdin and prints a secret, both as JSON.",
            valueName: "cmd"))
    var provider: String?

    @Flag(help: "The secret from the terminal or the source given is the recovery key.")
    var recoveryKey = false

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws {
        keyfile = try list.value("keyfile") ?? keyfile
        provider = try list.value("provider") ?? provider
    }

    var keyProvider: KeyProvider? { provider.map { KeyProvider(command: ProcessArguments.bytes(of: $0)) } }
}

/// The slots on which a secret is tried.
struct SlotChoiceOptions: ParsableArguments {
    /// The time after which the slot being tried is shown.
    private static let progressDelay: Duration = .seconds(2)
    /// The work of a slot that may take that long.
    private static let notableWork = 4 * ScryptCost.standard.work

    @Option(help: ArgumentHelp("Try the secret on this slot only, at any cost.", valueName: "id"))
    var slot: Int?

    @Flag(help: "Try all slots, even if that takes more than about half a minute.")
    var allowCostly = false

    func validate() throws {
        if slot != nil && allowCostly { throw ValidationError("only one of --slot, --allow-costly can be given") }
    }

    /// Opens a slot of a vault. If that takes long, shows on a terminal which slot is being tried.
    func open(
        _ directory: VaultDirectory, with secret: SlotSecret
    ) throws(VaultError) -> (masterKey: SecretBytes, slot: KeySlot) {
        let progress = ProgressLine()
        let start = ContinuousClock.now
        defer { progress.clear() }
        return try directory.openSlot(with: secret, choice: SlotChoice(only: slot, allowsCostly: allowCostly)) { slot in
            guard let cost = slot.kdf.cost else { return }
            if cost.work >= Self.notableWork || ContinuousClock.now - start >= Self.progressDelay {
                progress.show("trying slot \(slot.id), \(SlotReport.text(cost)) …")
            }
        }
    }
}

/// Arguments with a secret that opens a vault. The groups of options stand side by side: a debug build of ArgumentParser
/// validates a nested group four times as often.
protocol SecretArguments {
    var passphrase: PassphraseOptions { get }
    var secret: SecretOptions { get }
}

extension SecretArguments {
    /// The source that has the secret for every vault. Nil for the terminal, or a provider.
    var secretSource: SecretSource? {
        secret.keyfile.map { SecretSource("--keyfile", .keyfile($0.path)) } ?? passphrase.given.first
    }

    /// True if any of the options is given.
    var hasSecretOptions: Bool { secretSource != nil || secret.provider != nil || secret.recoveryKey }

    func validateSecret() throws {
        let others = [secret.keyfile.map { _ in "--keyfile" }, secret.provider.map { _ in "--provider" }]
        try SecretSource.checkSingle(passphrase.given.map(\.option) + others)
        if secret.recoveryKey { try SecretSource.checkSingle(["--recovery-key"] + others) }
    }

    /// Reads the secret.
    /// - Parameters:
    ///   - vault: for a provider.
    ///   - isNew: asks for a new passphrase twice.
    func readSecret(for vault: VaultConfiguration? = nil, isNew: Bool = false) throws(CommandFailure) -> SlotSecret {
        if let vault, let provider = secret.keyProvider { return try provider.secret(for: vault) }
        if let source = secretSource { return try source.read(isRecoveryKey: secret.recoveryKey) }
        if secret.recoveryKey { return try TerminalPrompt.ask("Recovery key: ").secret(.recovery) }
        return try (isNew ? TerminalPrompt.askForNew() : TerminalPrompt.ask("Passphrase: ")).secret(.passphrase)
    }
}

/// Arguments with a secret for a vault, and the slots on which it is tried.
protocol VaultOpener: SecretArguments {
    var slots: SlotChoiceOptions { get }
}

extension VaultOpener {
    /// Reads the secret and opens a slot.
    func open(_ vault: VaultDirectory) throws -> (masterKey: SecretBytes, slot: KeySlot) {
        try slots.open(vault, with: readSecret(for: vault.configuration))
    }
}
