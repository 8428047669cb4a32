internal import ArgumentParser
internal import BackingStore
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// Where the secret that opens a vault comes from: one of these, or the terminal.
struct SecretOptions: ParsableArguments {
    @OptionGroup
    var passphrase: PassphraseOptions

    @Option(help: ArgumentHelp("Use a keyfile (at least 32 bytes) instead of a passphrase.", valueName: "file"))
    var keyfile: PathArgument?

    @Flag(help: "Take what is typed, or comes from the source given, as the recovery key.")
    var recoveryKey = false

    func validate() throws {
        try PassphraseOptions.checkSingle(passphrase.sources + (keyfile == nil ? [] : ["--keyfile"]))
        guard !(recoveryKey && keyfile != nil) else {
            throw ValidationError("only one of --recovery-key, --keyfile can be given")
        }
    }

    /// Whether it is read from somewhere else than the terminal.
    var hasSource: Bool { !passphrase.sources.isEmpty || keyfile != nil }

    /// Whether any of the options is given.
    var isGiven: Bool { hasSource || recoveryKey }

    /// Reads the secret, from the terminal where no source was given.
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
