internal import ArgumentParser
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// Where the secret of a new slot comes from: one of these, or the terminal, which asks for a passphrase twice.
struct NewSecretOptions: ParsableArguments {
    /// A secret, and for a recovery key the text to be shown once.
    struct Secret {
        let secret: SlotSecret
        let recoveryKey: String?
    }

    @Option(help: ArgumentHelp("Read the new passphrase from a file.", valueName: "file"))
    var newPassfile: PathArgument?

    @Option(help: ArgumentHelp("Run a command and take its output as the new passphrase.", valueName: "cmd"))
    var newExtpass: String?

    @Option(
        name: .customLong("new-passphrase-fd"),
        help: ArgumentHelp("Read the new passphrase from a file descriptor.", valueName: "n"))
    var newPassphraseDescriptor: Int32?

    @Option(help: ArgumentHelp("The new secret is a keyfile (at least 32 bytes).", valueName: "file"))
    var newKeyfile: PathArgument?

    @Flag(help: "The new secret is a recovery key, which is made and printed once.")
    var newRecoveryKey = false

    /// The options given.
    var sources: [String] {
        [
            newPassfile == nil ? nil : "--new-passfile", newExtpass == nil ? nil : "--new-extpass",
            newPassphraseDescriptor == nil ? nil : "--new-passphrase-fd", newKeyfile == nil ? nil : "--new-keyfile",
            newRecoveryKey ? "--new-recovery-key" : nil,
        ].compactMap { $0 }
    }

    func validate() throws {
        try PassphraseOptions.checkSingle(sources)
        if let newPassphraseDescriptor, newPassphraseDescriptor < 0 {
            throw ValidationError("--new-passphrase-fd \(newPassphraseDescriptor) is not a file descriptor")
        }
    }

    /// Refuses to read two secrets from one descriptor: the first one takes all there is.
    func validate(beside old: SecretOptions) throws {
        if let newPassphraseDescriptor, newPassphraseDescriptor == old.passphrase.passphraseDescriptor {
            throw ValidationError("--passphrase-fd and --new-passphrase-fd must not be the same")
        }
    }

    func read() throws -> Secret {
        if newRecoveryKey {
            let key = try SecretBytes.random(count: RecoveryKey.size)
            return Secret(
                secret: try SlotSecret(kind: .recovery, bytes: key), recoveryKey: RecoveryKey.text(key))
        }
        return Secret(secret: try newKeyfile.map(SecretReader.keyfile) ?? passphrase(), recoveryKey: nil)
    }

    private var passphraseSource: PassphraseSource? {
        if let newPassfile { return .file(newPassfile.path) }
        if let newExtpass { return .command(ProcessArguments.bytes(of: newExtpass), option: "--new-extpass") }
        return newPassphraseDescriptor.map { .descriptor($0) }
    }

    private func passphrase() throws(CommandFailure) -> SlotSecret {
        let text: WipedBytes
        if let passphraseSource {
            text = try passphraseSource.read()
        } else {
            text = try TerminalPrompt.askForNew(
                otherwise: "--new-passfile, --new-extpass, --new-passphrase-fd, --new-keyfile or --new-recovery-key")
        }
        return try SecretReader.slotSecret(text, name: "new secret") { (bytes) throws(FormatError) in
            try .passphrase(bytes)
        }
    }
}
