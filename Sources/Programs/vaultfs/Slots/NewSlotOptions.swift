internal import ArgumentParser
internal import LinuxSystem
internal import VaultFormat

/// The source of a new slot's secret: one of these options, or the terminal, which asks for a passphrase twice.
struct NewSecretOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Read the new passphrase from a file; - for standard input, /dev/fd/N for a descriptor.",
            valueName: "file"))
    var newPassfile: PathArgument?

    @Option(help: ArgumentHelp("The new secret is a keyfile (at least 32 bytes).", valueName: "file"))
    var newKeyfile: PathArgument?

    @Flag(help: "The new secret is a recovery key, which is made and printed once.")
    var newRecoveryKey = false

    private var sources: [SecretSource] {
        [
            newPassfile.map { SecretSource("--new-passfile", textFile: $0.path) },
            newKeyfile.map { SecretSource("--new-keyfile", .keyfile($0.path)) },
        ].compactMap { $0 }
    }

    var options: [String] { sources.map(\.option) + (newRecoveryKey ? ["--new-recovery-key"] : []) }

    func validate() throws { try SecretSource.checkSingle(options) }

    /// Refuses to read two secrets from one descriptor.
    func validate(beside old: PassphraseOptions) throws {
        if let old = old.given.first, let new = sources.first, let descriptor = old.descriptor,
            descriptor == new.descriptor
        {
            throw ValidationError("\(old.option) and \(new.option) must not be the same input")
        }
    }

    /// Reads the secret if it is in a file. Call it before any question, because an unusable file ends the command.
    func readFile() throws(CommandFailure) -> SlotSecret? {
        guard let source = sources.first, source.descriptor == nil else { return nil }
        return try read(source)
    }

    /// Reads the secret, or makes a recovery key, and also returns its text, to be shown once.
    /// - Parameter secret: the result of `readFile`.
    func read(file secret: SlotSecret?) throws -> (secret: SlotSecret, recoveryKey: String?) {
        if let secret { return (secret, nil) }
        if newRecoveryKey {
            let key = try NewRecoveryKey.make()
            return (key.secret, key.text)
        }
        if let source = sources.first { return (try read(source), nil) }
        let text = try TerminalPrompt.askForNew(
            otherwise: "--new-passfile (- for standard input), --new-keyfile or --new-recovery-key")
        let secret = try text.secret(.passphrase, name: "new secret")
        SecretWarning.checkLength(secret)
        return (secret, nil)
    }

    private func read(_ source: SecretSource) throws(CommandFailure) -> SlotSecret {
        let secret = try source.read(name: "new secret")
        SecretWarning.checkLength(secret)
        return secret
    }
}

/// The cost of guessing a new passphrase.
struct KdfOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Cost of guessing the passphrase: scrypt with N = 2^n, 10 to 20; each step doubles time and memory; at "
                + "least \(ScryptCost.standard.logN) unless given.",
            valueName: "n"))
    var scryptLogn: Int?

    func validate() throws { _ = try given() }

    /// Returns the given cost, or nil.
    func given() throws -> ScryptCost? {
        guard let logN = scryptLogn else { return nil }
        let standard = ScryptCost.standard
        guard let cost = try? ScryptCost(logN: logN, r: standard.r, p: standard.p) else {
            throw ValidationError("--scrypt-logn \(logN) is not from 10 to 20")
        }
        return cost
    }

    /// Returns the cost of a new slot. Reports on stderr if guessing becomes cheaper.
    /// - Parameter old: the slot being replaced.
    /// - Throws: code `usage` if a replacement would make guessing cheaper.
    func cost(for kind: SlotKind, replacing old: KeySlot?, beside slots: [KeySlot]) throws -> ScryptCost {
        guard kind == .passphrase else { return .standard }
        // A guesser begins with the cheapest slot. So compare with the old slot if guessable, or else with all.
        let measure = old?.kdf.cost.map { [$0] } ?? slots.compactMap(\.kdf.cost)
        guard let given = try given() else { return .beside(measure) }
        if let costlier = measure.first(where: { !given.isAtLeast($0) }) {
            let (new, before) = (SlotReport.text(given), SlotReport.text(costlier))
            guard old == nil else {
                throw CommandFailure(.usage, "guessing would be cheaper with \(new), the vault has \(before)")
            }
            Console.report("warning: guessing is cheaper now: \(new), the vault has \(before)")
        }
        return given
    }
}

/// A slot's expiry: a time span from now (`30d`), a time (`2027-01-01T00:00:00Z`), or `never`.
struct ExpiryArgument {
    /// The time in the format of `vaultfs.json`; nil for never.
    let time: String?

    static func parse(_ text: String) throws -> ExpiryArgument {
        if text == "never" { return ExpiryArgument(time: nil) }
        if let duration = DurationArgument(argument: text) {
            let end = UtcTime.secondsSinceEpoch() + Int64(duration.milliseconds / 1000)
            return ExpiryArgument(time: UtcTime.text(secondsSinceEpoch: end))
        }
        guard UtcTime.seconds(text.utf8) != nil else {
            throw ValidationError("not \(DurationArgument.form), nor one such as 2027-01-01T00:00:00Z, nor never")
        }
        return ExpiryArgument(time: text)
    }

    /// - Throws: code `usage` if it is not in the future.
    func check() throws(CommandFailure) {
        guard let time, time <= UtcTime.now() else { return }
        throw CommandFailure(.usage, "--expires \(time) is not in the future")
    }
}

/// A slot's play window, from its first use: a time span in whole seconds, or `none`.
struct PlayWindowArgument {
    /// The window before its start; nil for none.
    let window: PlayWindow?

    static func parse(_ text: String) throws -> PlayWindowArgument {
        if text == "none" { return PlayWindowArgument(window: nil) }
        guard let duration = DurationArgument(argument: text), duration.milliseconds.isMultiple(of: 1000),
            let window = try? PlayWindow(seconds: duration.milliseconds / 1000)
        else { throw ValidationError("not \(DurationArgument.form), in whole seconds, nor none") }
        return PlayWindowArgument(window: window)
    }
}

/// A slot's label on the command line: UTF-8, so short that 64 slots leave vaultfs.json far from its limit of 1 MiB.
enum LabelArgument {
    /// The most bytes of a label.
    private static let limit = 100

    static func parse(_ argument: String) throws -> String {
        let bytes = ProcessArguments.bytes(of: argument)
        guard bytes.count <= limit, let text = String(validating: bytes, as: UTF8.self) else {
            throw ValidationError("not UTF-8 of at most \(limit) bytes")
        }
        return text
    }
}
