internal import ArgumentParser
internal import Daemon
internal import LinuxSystem
internal import VaultFormat
internal import VaultStore

/// `vaultfs slot change VAULT [SLOT]`
struct SlotChangeCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "change", abstract: "Give a slot another secret, label or expiry.",
        discussion: """
            Changes the slot that the secret opens, or the one that is named. The recovery key changes the only passphrase \
            slot: name it if there are several. Id, label and expiry stay unless an option changes them. The new \
            secret may be of another kind. A rename replaces the old slot with the new one: at every moment one of the \
            two opens the vault.

            With --label or --play-window and nothing else, no new secret is asked for, and with a named slot its own secret \
            is not needed.

            The secret of a slot that ends cannot give a slot a later end, and cannot change a slot that may open longer. \
            To renew a slot, use the secret of one without an end, and give the slot a secret again, which may be the same.

            Guessing a new passphrase costs at least as much as guessing the old one. For a cheaper one, add a slot and \
            remove the old one.
            """)

    @OptionGroup
    var common: VaultArguments

    @Argument(
        help: """
            The slot's id or label in 'slot list'; default: the slot that the secret opens, or for the recovery key the \
            only passphrase slot.
            """, completion: Completions.slots)
    var slot: SlotName?

    @Flag(help: "Keep the secret: to renew an expiry, or to make guessing more expensive.")
    var keepSecret = false

    @Option(help: ArgumentHelp("Another label, at most 100 bytes.", valueName: "text"), transform: LabelArgument.parse)
    var label: String?

    @Option(
        help: ArgumentHelp("Another expiry: 30d, 12h, 2027-01-01T00:00:00Z or never.", valueName: "time"),
        transform: ExpiryArgument.parse)
    var expires: ExpiryArgument?

    @Option(
        help: ArgumentHelp(
            "Another play window, which begins with the next use: 48h, 30min or none.", valueName: "duration"),
        transform: PlayWindowArgument.parse)
    var playWindow: PlayWindowArgument?

    @Flag(help: "Even if every slot then expires, and nothing opens the vault after the last.")
    var force = false

    @OptionGroup(title: "New secret")
    var newSecret: NewSecretOptions

    @OptionGroup
    var kdf: KdfOptions

    func validate() throws {
        try newSecret.validate(beside: common.secret.options.passphrase)
        try SecretSource.checkSingle(newSecret.options + [keepSecret ? "--keep-secret" : nil])
    }

    func run() throws {
        ProcessSetup.protectMemory()
        try expires?.check()
        let directory = try GivenVault.open(common.vault.path)
        let file = try newSecret.readFile()
        let known = try knownSlot(of: directory.configuration)
        let opened = try common.secret.open(directory, asking: .toChangeSlots)
        let slot = try chosenSlot(known, of: directory.configuration, opened: opened.slot)
        try checkStillOpens(slot)
        let window = playWindow == nil ? slot.window : playWindow?.window
        let expires = expires == nil ? slot.expires : expires?.time
        try SlotAuthority(opened.slot).checkChanging(slot, expires: expires, window: window)
        let editor = SlotEditor(directory, masterKey: opened.masterKey)
        if needsNoSecret {
            return try NewSlotReport.print("Changed", isJSON: common.json) { _ throws(VaultError) in
                try editor.change(slot, toWindow: window, label: label, isForced: force)
            }
        }
        let (secret, recoveryKey) = keepSecret ? (opened.secret, nil) : try newSecret.read(file: file)
        if !keepSecret {
            SecretWarning.checkOtherSlots(of: directory.configuration, for: secret, changing: slot.id)
        }
        let cost = try kdf.cost(for: secret.kind, replacing: slot, beside: directory.configuration.slots)
        let request = SlotRequest(
            secret: secret, cost: cost, label: label ?? slot.label, expires: expires, window: window)
        try NewSlotReport.print("Changed", isJSON: common.json, recoveryKey: recoveryKey) {
            onReady throws(VaultError) in
            try editor.change(slot, to: request, isForced: force, onReady: onReady)
        }
        guard slot.kind == .recovery, !keepSecret else { return }
        RecoveryKeyText.reportEnd(of: slot, in: common.vault.path, isReplaced: secret.kind == .recovery)
    }

    /// Checks that the change does not silently keep a past end.
    private func checkStillOpens(_ slot: KeySlot) throws(CommandFailure) {
        if expires == nil, let past = slot.expires, past <= UtcTime.now() {
            throw CommandFailure(.usage, "slot \(slot.id) has expired (\(past)): give --expires")
        }
        if playWindow == nil, let end = slot.window?.end, end <= UtcTime.secondsSinceEpoch() {
            throw CommandFailure(.usage, "the play window of slot \(slot.id) has ended: give --play-window")
        }
    }

    /// True if only the label or the play window changes, because the slot's secret does not encrypt these.
    private var needsNoSecret: Bool {
        (playWindow != nil || label != nil) && expires == nil && kdf.scryptLogn == nil && newSecret.options.isEmpty
    }

    /// Returns the slot to change, as far as it is known before the secret. Nil for the slot opened by the secret.
    private func knownSlot(of configuration: VaultConfiguration) throws(CommandFailure) -> KeySlot? {
        guard let id = try self.slot?.id(in: configuration) else {
            return common.secret.options.recoveryKey ? try slotToRecover(in: configuration) : nil
        }
        guard let slot = configuration.slot(id) else {
            throw CommandFailure(
                .failure, "there is no slot \(id): the slots are \(SlotReport.list(configuration.slots))")
        }
        return slot
    }

    private func chosenSlot(
        _ known: KeySlot?, of configuration: VaultConfiguration, opened: KeySlot
    ) throws(CommandFailure) -> KeySlot {
        guard let known else {
            return try (opened.kind == .recovery ? slotToRecover(in: configuration) : nil) ?? opened
        }
        guard !keepSecret || known == opened else {
            let advice =
                known.kind == opened.kind
                ? "if it is that of slot \(known.id) too, give --slot \(known.id)"
                : "slot \(known.id) is of the kind \(known.kind.rawValue)"
            throw CommandFailure(.usage, "--keep-secret: the secret is that of slot \(opened.id); \(advice)")
        }
        return known
    }

    /// Returns the slot changed by a recovery key if the user names none. The key is used to replace a lost passphrase,
    /// so it must not go itself. Nil if the user means the key's own slot.
    private func slotToRecover(in configuration: VaultConfiguration) throws(CommandFailure) -> KeySlot? {
        guard !keepSecret, !newSecret.newRecoveryKey else { return nil }
        let slots = configuration.slots.filter { $0.kind == .passphrase }
        if slots.count == 1 { return slots[0] }
        throw CommandFailure(
            .usage,
            "name the slot that the recovery key changes, because \(slots.isEmpty ? "none" : "more than one") has a "
                + "passphrase: the slots are \(SlotReport.list(configuration.slots))")
    }
}
