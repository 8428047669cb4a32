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

    /// Reads the secret, from the terminal where no source was given.
    /// - Parameter isNew: a new passphrase is asked for twice.
    func read(isNew: Bool = false) throws(CommandFailure) -> SlotSecret {
        if let keyfile {
            let contents = try SecretReader.read(path: keyfile.path, limit: SecretReader.keyfileLimit)
            return try slotSecret(contents, name: "keyfile \(keyfile.path.shown)") { (bytes) throws(FormatError) in
                try .keyfile(bytes)
            }
        }
        let text = try readText(isNew: isNew)
        if recoveryKey {
            return try slotSecret(text, name: nil) { (bytes) throws(FormatError) in try .recovery(bytes) }
        }
        return try slotSecret(text, name: nil) { (bytes) throws(FormatError) in try .passphrase(bytes) }
    }

    private func readText(isNew: Bool) throws(CommandFailure) -> WipedBytes {
        if let given = try passphrase.read() { return given }
        if recoveryKey { return try TerminalPrompt.ask("Recovery key: ") }
        guard isNew else { return try TerminalPrompt.ask("Passphrase: ") }
        let passphrase = try TerminalPrompt.ask("New passphrase: ")
        guard !passphrase.isEmpty else { throw CommandFailure(.usage, "the passphrase is empty") }
        let again = try TerminalPrompt.ask("The same again: ")
        guard passphrase.hasSameBytes(as: again) else {
            throw CommandFailure(.failure, "the two passphrases differ; nothing was made")
        }
        return passphrase
    }

    private func slotSecret(
        _ bytes: WipedBytes, name: String?, _ make: ([UInt8]) throws(FormatError) -> SlotSecret
    ) throws(CommandFailure) -> SlotSecret {
        do throws(FormatError) {
            return try bytes.withBytes(make)
        } catch {
            throw CommandFailure(.wrongSecret, (name.map { $0 + ": " } ?? "") + error.reason)
        }
    }
}
