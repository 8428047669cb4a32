internal import ArgumentParser
internal import VaultFormat
internal import VaultStore

/// Where the secret that opens a vault comes from: one of these, or the terminal.
struct SecretOptions: ParsableArguments {
    @OptionGroup
    var passphrase: PassphraseOptions

    @Option(help: ArgumentHelp("Use a keyfile (at least 32 bytes) instead of a passphrase.", valueName: "file"))
    var keyfile: PathArgument?

    @Option(
        help: ArgumentHelp(
            "Run a command with /bin/sh that is told of the vault and its slots on stdin and gives a secret, as JSON.",
            valueName: "cmd"))
    var provider: String?

    @Flag(help: "Take what is typed, or comes from the source given, as the recovery key.")
    var recoveryKey = false

    func validate() throws {
        let others = [keyfile == nil ? nil : "--keyfile", provider == nil ? nil : "--provider"].compactMap { $0 }
        try PassphraseOptions.checkSingle(passphrase.sources + others)
        if recoveryKey { try PassphraseOptions.checkSingle(["--recovery-key"] + others) }
    }

    /// What fstab can only say within `-o`.
    mutating func take(_ list: MountOptionList) throws {
        if let text = list.ours["keyfile"] { keyfile = PathArgument(argument: text) }
        if let text = list.ours["provider"] { provider = text }
        try passphrase.take(list)
        try validate()
    }

    /// The secret for a vault that is there.
    func read(for vault: VaultConfiguration) throws(CommandFailure) -> SlotSecret {
        guard let keyProvider else { return try read() }
        return try keyProvider.secret(for: vault)
    }

    var keyProvider: KeyProvider? { provider.map { KeyProvider(command: ProcessArguments.bytes(of: $0)) } }

    /// Whether it is read from one place, whatever the vault is, and not from the terminal.
    var hasSource: Bool { !passphrase.sources.isEmpty || keyfile != nil }

    /// Whether any of the options is given.
    var isGiven: Bool { hasSource || provider != nil || recoveryKey }

    /// Reads the secret, from the terminal where no source was given; for a new vault, which no provider knows of.
    /// - Parameter isNew: a new passphrase is asked for twice.
    func read(isNew: Bool = false) throws(CommandFailure) -> SlotSecret {
        if let keyfile { return try SecretReader.keyfile(keyfile) }
        let text = try readText(isNew: isNew)
        if recoveryKey {
            return try SecretReader.slotSecret(text) { (bytes) throws(FormatError) in try .recovery(bytes) }
        }
        return try SecretReader.slotSecret(text) { (bytes) throws(FormatError) in try .passphrase(bytes) }
    }

    private func readText(isNew: Bool) throws(CommandFailure) -> WipedBytes {
        if let given = try passphrase.read() { return given }
        if recoveryKey { return try TerminalPrompt.ask("Recovery key: ") }
        return isNew ? try TerminalPrompt.askForNew() : try TerminalPrompt.ask("Passphrase: ")
    }
}
