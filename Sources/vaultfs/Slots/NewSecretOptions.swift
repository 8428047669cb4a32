internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// The source of a new slot's secret: one of these options, or the terminal, which asks for a passphrase twice.
struct NewSecretOptions: ParsableArguments {
    struct Secret {
        let secret: SlotSecret
        /// The recovery key's text, to be shown once.
        var recoveryKey: String?
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

    /// The sources of a passphrase that are given, with their options.
    private var passphrases: [SecretSource] {
        [
            newPassfile.map { .file("--new-passfile", $0.path) }, newExtpass.map { .command("--new-extpass", $0) },
            newPassphraseDescriptor.map { .descriptor("--new-passphrase-fd", $0) },
        ].compactMap { $0 }
    }

    /// The options given.
    var options: [String] {
        let others = [newKeyfile.map { _ in "--new-keyfile" }, newRecoveryKey ? "--new-recovery-key" : nil]
        return passphrases.map(\.option) + others.compactMap { $0 }
    }

    func validate() throws {
        try PassphraseOptions.checkSingle(options)
        for source in passphrases { try source.validate() }
    }

    /// Refuses to read two secrets from one descriptor.
    func validate(beside old: SecretOptions) throws {
        if let newPassphraseDescriptor, newPassphraseDescriptor == old.passphrase.passphraseDescriptor {
            throw ValidationError("--passphrase-fd and --new-passphrase-fd must not be the same")
        }
    }

    func read() throws -> Secret {
        if newRecoveryKey {
            let key = try SecretBytes.random(count: RecoveryKey.size)
            return Secret(secret: try SlotSecret(kind: .recovery, bytes: key), recoveryKey: RecoveryKey.text(key))
        }
        return Secret(secret: try newKeyfile.map(SecretReader.keyfile) ?? passphrase())
    }

    private func passphrase() throws(CommandFailure) -> SlotSecret {
        let text: WipedBytes
        if let source = passphrases.first {
            text = try source.read()
        } else {
            text = try TerminalPrompt.askForNew(
                otherwise: "--new-passfile, --new-extpass, --new-passphrase-fd, --new-keyfile or --new-recovery-key")
        }
        return try SecretReader.slotSecret(text, name: "new secret") { (bytes) throws(FormatError) in
            try .passphrase(bytes)
        }
    }
}

/// The output of `slot add` and `slot change`.
struct NewSlotReport {
    private struct Report: Encodable {
        let slot: SlotReport
        let recoveryKey: String?
    }

    /// "Added", "Changed".
    let what: String
    let isJSON: Bool
    let recoveryKey: String?
    let progress = ProgressLine()

    /// Shows progress on a terminal while `body` runs.
    func whileDeriving<Result>(_ body: () throws(VaultError) -> Result) throws(VaultError) -> Result {
        progress.show("deriving keys …")
        defer { progress.clear() }
        return try body()
    }

    /// Prints the recovery key before the slot is made: if the output fails, no slot is made whose key nobody has.
    func showRecoveryKey(of slot: KeySlot) throws(VaultError) {
        guard let recoveryKey else { return }
        progress.clear()
        do throws(CommandFailure) {
            try Console.write(isJSON ? json(slot) : RecoveryKeyText.shown(recoveryKey) + "\n\n")
        } catch {
            throw .slotRefused("nothing was changed: the recovery key cannot be shown: \(error.message)")
        }
    }

    func finish(_ slot: KeySlot) throws(CommandFailure) {
        if isJSON {
            if recoveryKey == nil { try Console.write(json(slot)) }
        } else {
            print("\(what) slot \(slot.id): \(SlotReport(slot).text).")
        }
    }

    private func json(_ slot: KeySlot) throws(CommandFailure) -> String {
        try Console.json(Report(slot: SlotReport(slot), recoveryKey: recoveryKey))
    }
}

/// The text that shows a new recovery key once.
enum RecoveryKeyText {
    static func shown(_ key: String) -> String {
        """
        Recovery key, for when the passphrase is lost:

          \(key)

        Whoever has it can open the vault. Write it down and keep it elsewhere; it is not shown again.
        """
    }
}
