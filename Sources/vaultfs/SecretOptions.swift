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
        guard let provider else { return try read() }
        return try KeyProvider(command: ProcessArguments.bytes(of: provider)).secret(for: vault)
    }

    /// Whether it is read from one place, whatever the vault is, and not from the terminal.
    var hasSource: Bool { !passphrase.sources.isEmpty || keyfile != nil }

    /// Reads the secret, from the terminal where no source was given; for a new vault, which no provider knows of.
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
