internal import ArgumentParser
internal import VaultCrypto
internal import VaultFormat
internal import VaultStore

/// The secret that opens a vault, and the slots to try it on.
struct VaultSecretOptions: ParsableArguments {
    /// The time after which the progress line shows the slot being tried.
    private static let progressDelay: Duration = .seconds(2)
    /// The work of a slot that may take that long.
    private static let notableWork = 4 * ScryptCost.standard.work

    @OptionGroup
    var options: SecretOptions

    @Option(
        help: ArgumentHelp("Try the secret on the slot with this id or label only, at any cost.", valueName: "slot"),
        completion: Completions.slots)
    var slot: SlotName?

    @Flag(help: "Try all slots, even if that takes more than about half a minute.")
    var allowCostly = false

    func validate() throws {
        if slot != nil && allowCostly { throw ValidationError("only one of --slot, --allow-costly can be given") }
    }

    /// Reads the secret and opens a slot. A person at a terminal has three tries.
    func open(
        _ vault: VaultDirectory, asking question: SecretQuestion = .toOpen
    ) throws(CommandFailure) -> OpenedSlot {
        let only = try slot?.id(in: vault.configuration)
        let result = try options.withSecret(for: vault.configuration, asking: question, refusal: \.failure) {
            (secret) throws(CommandFailure) -> Result<OpenedSlot, CommandFailure> in
            do throws(VaultError) {
                let (masterKey, slot) = try open(vault, with: secret, only: only)
                return .success(OpenedSlot(secret: secret, masterKey: masterKey, slot: slot))
            } catch {
                guard case .wrongSecret = error else { throw CommandFailure(error) }
                return .failure(CommandFailure(.wrongSecret, error.description))
            }
        }
        guard options.isTyped, !options.recoveryKey, case .failure(let failure) = result else {
            return try result.get()
        }
        // Give the advice only after the last try, because nearly always the passphrase is wrong.
        throw CommandFailure(
            failure.code, "\(failure.message); \(RecoveryKeyText.advice(in: vault.configuration))")
    }

    /// Opens a slot of a vault. If that takes long, names the slot being tried, and the wait, on stderr.
    /// - Parameter only: the id of the only slot to try.
    func open(
        _ directory: VaultDirectory, with secret: SlotSecret, only: Int?
    ) throws(VaultError) -> (masterKey: SecretBytes, slot: KeySlot) {
        let progress = ProgressLine()
        let start = ContinuousClock.now
        defer { progress.clear() }
        return try directory.openSlot(with: secret, choice: SlotChoice(only: only, allowsCostly: allowCostly)) { slot in
            guard let cost = slot.kdf.cost else { return }
            let isNotable = cost.work >= Self.notableWork
            // The standard cost takes half a second.
            let wait = isNotable ? ": some \(cost.work / ScryptCost.standard.work / 2) s" : ""
            let text = "trying slot \(slot.id), \(SlotReport.text(cost))\(wait)"
            if progress.isShown {
                if isNotable || ContinuousClock.now - start >= Self.progressDelay { progress.show([text + " …"]) }
            } else if isNotable && !Console.isQuiet {
                Console.report(text)
            }
        }
    }
}

struct OpenedSlot {
    let secret: SlotSecret
    let masterKey: SecretBytes
    let slot: KeySlot
}

extension Result {
    fileprivate var failure: Failure? {
        guard case .failure(let failure) = self else { return nil }
        return failure
    }
}
