internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

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

    /// The sources given, with their options.
    var given: [SecretSource] {
        [
            passfile.map { .file("--passfile", $0.path) }, extpass.map { .command("--extpass", $0) },
            passphraseDescriptor.map { .descriptor("--passphrase-fd", $0) }, keyring.map { .key("--keyring", $0) },
            credential.map { .credential("--credential", $0) },
        ].compactMap { $0 }
    }

    func validate() throws {
        try Self.checkSingle(given.map(\.option))
        for source in given { try source.validate() }
    }

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws {
        if let text = list.ours["passfile"] { passfile = PathArgument(argument: text) }
        extpass = list.ours["extpass"] ?? extpass
        if let text = list.ours["passphrase_fd"] {
            guard let number = Int32(text) else {
                throw CommandFailure(.usage, "mount option passphrase_fd='\(text)' is not a number")
            }
            passphraseDescriptor = number
        }
        keyring = list.ours["keyring"] ?? keyring
        credential = list.ours["credential"] ?? credential
        try validate()
    }

    static func checkSingle(_ options: [String?]) throws {
        let given = options.compactMap { $0 }
        guard given.count <= 1 else {
            throw ValidationError("only one of \(given.joined(separator: ", ")) can be given")
        }
    }

    /// Reads the passphrase, from the terminal if there is no source.
    func passphrase() throws(CommandFailure) -> SlotSecret {
        let text: WipedBytes
        if let source = given.first { text = try source.read() } else { text = try TerminalPrompt.ask("Passphrase: ") }
        return try SecretReader.slotSecret(text) { (bytes) throws(FormatError) in try .passphrase(bytes) }
    }
}

/// The source of the secret that opens a vault: one of these options, or the terminal.
struct SecretOptions: ParsableArguments {
    @OptionGroup
    var passphrase: PassphraseOptions

    @Option(help: ArgumentHelp("Use a keyfile (at least 32 bytes) instead of a passphrase.", valueName: "file"))
    var keyfile: PathArgument?

    @Option(
        help: ArgumentHelp(
            "Run a command with /bin/sh that reads the vault and its slots on stdin and prints a secret, both as JSON.",
            valueName: "cmd"))
    var provider: String?

    @Flag(help: "The secret from the terminal or the source given is the recovery key.")
    var recoveryKey = false

    func validate() throws {
        let others = [keyfile.map { _ in "--keyfile" }, provider.map { _ in "--provider" }]
        try PassphraseOptions.checkSingle(passphrase.given.map(\.option) + others)
        if recoveryKey { try PassphraseOptions.checkSingle(["--recovery-key"] + others) }
    }

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws {
        if let text = list.ours["keyfile"] { keyfile = PathArgument(argument: text) }
        provider = list.ours["provider"] ?? provider
        try passphrase.take(list)
        try validate()
    }

    /// Reads the secret for a vault.
    func read(for vault: VaultConfiguration) throws(CommandFailure) -> SlotSecret {
        guard let keyProvider else { return try read() }
        return try keyProvider.secret(for: vault)
    }

    var keyProvider: KeyProvider? { provider.map { KeyProvider(command: ProcessArguments.bytes(of: $0)) } }

    /// True if one source, not the terminal, has the secret for every vault.
    var hasSource: Bool { !passphrase.given.isEmpty || keyfile != nil }

    /// True if any of the options is given.
    var isGiven: Bool { hasSource || provider != nil || recoveryKey }

    /// Reads the secret without a provider, which needs an existing vault.
    /// - Parameter isNew: asks for a new passphrase twice.
    func read(isNew: Bool = false) throws(CommandFailure) -> SlotSecret {
        if let keyfile { return try SecretReader.keyfile(keyfile) }
        let text = try readText(isNew: isNew)
        if recoveryKey {
            return try SecretReader.slotSecret(text) { (bytes) throws(FormatError) in try .recovery(bytes) }
        }
        return try SecretReader.slotSecret(text) { (bytes) throws(FormatError) in try .passphrase(bytes) }
    }

    private func readText(isNew: Bool) throws(CommandFailure) -> WipedBytes {
        if let source = passphrase.given.first { return try source.read() }
        if recoveryKey { return try TerminalPrompt.ask("Recovery key: ") }
        return isNew ? try TerminalPrompt.askForNew() : try TerminalPrompt.ask("Passphrase: ")
    }
}
