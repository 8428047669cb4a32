internal import ArgumentParser
internal import SystemPackage
internal import VaultFormat

/// The source of a passphrase: one of these options, or the terminal.
struct PassphraseOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Read the passphrase from a file; - for standard input, /dev/fd/N for a descriptor.", valueName: "file"))
    var passfile: PathArgument?

    @Option(help: ArgumentHelp("Run a command with /bin/sh and take its output as the passphrase.", valueName: "cmd"))
    var extpass: String?

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
            passfile.map { SecretSource("--passfile", textFile: $0.path) },
            extpass.map { SecretSource("--extpass", .command($0)) },
            keyring.map { SecretSource("--keyring", .key($0)) },
            credential.map { SecretSource("--credential", .credential($0)) },
        ].compactMap { $0 }
    }

    func validate() throws { try SecretSource.check(given) }

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws {
        passfile = try list.value("passfile") ?? passfile
        extpass = try list.value("extpass") ?? extpass
        keyring = try list.value("keyring") ?? keyring
        credential = try list.value("credential") ?? credential
        try validate()
    }

    /// Reads the passphrase, from the terminal if there is no source.
    func read() throws(CommandFailure) -> SlotSecret {
        if let source = given.first { return try source.read() }
        return try TerminalPrompt.ask("Passphrase: ", otherwise: TerminalPrompt.passphraseSources).secret(.passphrase)
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
