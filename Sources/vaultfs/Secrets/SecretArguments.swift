internal import LinuxSystem
internal import VaultFormat

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

    /// True if the secret is asked for on the terminal.
    private var isTyped: Bool { secretSource == nil && secret.provider == nil }

    /// True if any of the options is given.
    var hasSecretOptions: Bool { secretSource != nil || secret.provider != nil || secret.recoveryKey }

    func validateSecret() throws {
        let others = [secret.keyfile.map { _ in "--keyfile" }, secret.provider.map { _ in "--provider" }]
        try SecretSource.checkSingle(passphrase.given.map(\.option) + others)
        if secret.recoveryKey { try SecretSource.checkSingle(["--recovery-key"] + others) }
    }

    /// Reads the secret.
    /// - Parameter vault: for a provider, and for a recovery key that is typed in place of the passphrase.
    func readSecret(for vault: VaultConfiguration? = nil) throws(CommandFailure) -> SlotSecret {
        if let vault, let provider = secret.keyProvider { return try provider.secret(for: vault) }
        if let source = secretSource { return try source.read(isRecoveryKey: secret.recoveryKey) }
        if secret.recoveryKey { return try TerminalPrompt.ask("Recovery key: ").secret(.recovery) }
        let typed = try TerminalPrompt.ask("Passphrase: ")
        // Its check digits tell it from a passphrase.
        if vault?.hasRecoveryKey ?? true, let key = try? typed.secret(.recovery) {
            Console.report("a recovery key was typed: used as one")
            return key
        }
        return try typed.secret(.passphrase)
    }

    /// Reads the secret of a new vault. Asks for a new passphrase twice.
    func readNewSecret() throws(CommandFailure) -> SlotSecret {
        let new =
            if let secretSource { try secretSource.read() } else { try TerminalPrompt.askForNew().secret(.passphrase) }
        SecretWarning.checkLength(new)
        return new
    }

    /// Reads the secret and uses it. A person at a terminal has three tries.
    /// - Parameter refusal: the failure in a result if another secret may do. Nil for any other result.
    /// - Returns: the last result.
    func withSecret<Value>(
        for vault: VaultConfiguration?, refusal: (Value) -> CommandFailure?,
        _ use: (SlotSecret) throws(CommandFailure) -> Value
    ) throws(CommandFailure) -> Value {
        var triesLeft = isTyped ? TerminalPrompt.maximumTries : 1
        while true {
            triesLeft -= 1
            let secret: SlotSecret
            do throws(CommandFailure) { secret = try readSecret(for: vault) } catch {
                // Such as a recovery key with a wrong digit.
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
