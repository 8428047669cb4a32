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

    var given: [SecretSource] {
        [
            passfile.map { SecretSource("--passfile", textFile: $0.path) },
            extpass.map { SecretSource("--extpass", .command($0)) },
            keyring.map { SecretSource("--keyring", .key($0)) },
            credential.map { SecretSource("--credential", .credential($0)) },
        ].compactMap { $0 }
    }

    func validate() throws { try SecretSource.check(given) }

    /// Reads the passphrase, from the terminal if the options name no source.
    /// - Parameter isFirstLine: true if only the first line of the secret counts.
    func read(isFirstLine: Bool = false) throws(CommandFailure) -> SlotSecret {
        if let source = given.first { return try source.read(isFirstLine: isFirstLine) }
        return try TerminalPrompt.withoutEcho(otherwise: TerminalPrompt.passphraseSources) {
            (terminal) throws(CommandFailure) in
            try terminal.ask(SecretQuestion.toOpen.rawValue).secret(.passphrase)
        }
    }
}

/// The question, on the terminal, for a secret that opens a vault.
enum SecretQuestion: String {
    case toOpen = "Passphrase: "
    /// For use beside the question for a new passphrase, which must not be confused with this one.
    case toChangeSlots = "Passphrase that opens the vault now: "
}

/// The source of a secret that opens a vault: one of these options, or the terminal.
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

    @Flag(help: "Take the secret from the desktop's keyring, where 'vaultfs-keyring enroll' has put it.")
    var desktopKeyring = false

    @Flag(help: "The secret from the terminal or the source given is the recovery key.")
    var recoveryKey = false

    var keyProvider: KeyProvider? {
        if desktopKeyring {
            return KeyProvider(command: Array("exec vaultfs-keyring secret".utf8), option: "--desktop-keyring")
        }
        return provider.map { KeyProvider(command: ProcessArguments.bytes(of: $0), option: "--provider") }
    }

    /// The source of one secret for every vault. Nil for the terminal, or a provider.
    var source: SecretSource? {
        keyfile.map { SecretSource("--keyfile", .keyfile($0.path)) } ?? passphrase.given.first
    }

    /// True if the command asks for the secret on the terminal.
    var isTyped: Bool { source == nil && keyProvider == nil }

    /// True if the user gave any of the options.
    var isGiven: Bool { !isTyped || recoveryKey }

    func validate() throws {
        let others = [
            keyfile.map { _ in "--keyfile" }, provider.map { _ in "--provider" },
            desktopKeyring ? "--desktop-keyring" : nil,
        ]
        try SecretSource.checkSingle(passphrase.given.map(\.option) + others)
        if recoveryKey { try SecretSource.checkSingle(["--recovery-key"] + others) }
    }

    /// Reads the secret if one source has it for every vault. Returns nil for the terminal, or a provider.
    func readSource() throws(CommandFailure) -> SlotSecret? { try source?.read(isRecoveryKey: recoveryKey) }

    /// Asks for the secret.
    /// - Parameter vault: the vault, for a recovery key typed instead of the passphrase.
    private func ask(
        on terminal: SilentTerminal, for vault: VaultConfiguration?, _ question: SecretQuestion
    ) throws(CommandFailure) -> SlotSecret {
        if recoveryKey { return try terminal.ask("Recovery key: ").secret(.recovery) }
        let typed = try terminal.ask(question.rawValue)
        // Its check digits distinguish a recovery key from a passphrase.
        if vault?.hasRecoveryKey ?? true, let key = try? typed.secret(.recovery) {
            Console.report("a recovery key was typed: used as one")
            return key
        }
        return try typed.secret(.passphrase)
    }

    /// Reads the secret of a new vault. Asks for a new passphrase twice.
    func readNew() throws(CommandFailure) -> SlotSecret {
        let new =
            if let source { try source.read() } else { try TerminalPrompt.askForNew().secret(.passphrase) }
        SecretWarning.checkLength(new)
        return new
    }

    /// Reads the secret and uses it. A person at a terminal has three tries. If the desktop's keyring fails, they can
    /// type the secret, except for a change of slots, because that may concern the slot of the given secret.
    /// - Parameter refusal: the failure in a result after which another secret may work; nil for any other result.
    /// - Returns: the last result.
    func withSecret<Value>(
        for vault: VaultConfiguration?, asking question: SecretQuestion = .toOpen,
        refusal: (Value) -> CommandFailure?,
        _ use: (SlotSecret) throws(CommandFailure) -> Value
    ) throws(CommandFailure) -> Value {
        if let vault, let provider = keyProvider {
            let answer = Result { () throws(CommandFailure) in try provider.secret(for: vault) }
            let isLast = !desktopKeyring || question == .toChangeSlots || !TerminalPrompt.isThere
            switch answer {
            case .failure(let failure):
                if isLast { throw failure }
                Console.report(failure.message)
            case .success(let secret):
                let result = try use(secret)
                guard !isLast, let failure = refusal(result) else { return result }
                Console.report(failure.message)
            }
        }
        if let secret = try readSource() { return try use(secret) }
        return try TerminalPrompt.withoutEcho { (terminal) throws(CommandFailure) in
            var triesLeft = TerminalPrompt.maximumTries
            while true {
                triesLeft -= 1
                let secret: SlotSecret
                do throws(CommandFailure) { secret = try ask(on: terminal, for: vault, question) } catch {
                    // The input is malformed, such as a recovery key with a wrong digit.
                    guard error.code == .wrongSecret, triesLeft > 0 else { throw error }
                    Console.report(error.message)
                    continue
                }
                let result = try use(secret)
                guard let failure = refusal(result), triesLeft > 0 else { return result }
                Console.report(failure.message)
            }
        }
    }
}
