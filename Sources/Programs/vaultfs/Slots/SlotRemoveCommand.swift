internal import ArgumentParser
internal import Daemon
internal import VaultFormat
internal import VaultStore

/// `vaultfs slot remove VAULT SLOT…`
struct SlotRemoveCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "remove", abstract: "Remove slots, so that their secrets no longer open the vault.",
        discussion: """
            An older copy of vaultfs.json can still be opened with the secret.

            A mount made with a slot that has an end locks when the slot is removed. Other mounts stay unlocked. The secret \
            of a slot that ends cannot remove a slot that may open longer.

            The last slot, and the last one without an end, can be removed only with --force. A vault has at least one slot, \
            so one that no secret opens takes its place. The vault can then never be opened again, except with an older \
            copy of vaultfs.json.
            """)

    @OptionGroup
    var common: VaultArguments

    @Argument(
        help: ArgumentHelp("The slots, by the ids or labels that 'slot list' shows.", valueName: "slot"),
        completion: Completions.slots)
    var slots: [SlotName]

    @Flag(help: "Remove it even if nothing can open the vault afterwards.")
    var force = false

    private struct Report: Encodable {
        let removed, remaining: [SlotReport]
    }

    func run() throws {
        ProcessSetup.protectMemory()
        let directory = try GivenVault.open(common.vault.path)
        let opened = try common.secret.open(directory)
        var ids: Set<Int> = []
        for name in slots { ids.insert(try name.id(in: directory.configuration)) }
        for slot in directory.configuration.slots where ids.contains(slot.id) {
            try SlotAuthority(opened.slot).checkTouching(slot)
        }
        let removal = try SlotEditor(directory, masterKey: opened.masterKey).remove(ids, isForced: force)
        if common.json {
            try Console.printJSON(
                Report(
                    removed: removal.removed.map(SlotReport.init), remaining: removal.remaining.map(SlotReport.init)))
        } else {
            for slot in removal.removed { Console.confirm("Removed slot \(slot.id): \(SlotReport(slot).text).") }
        }
        // Give the advice only if a slot is left, because without one a new slot cannot be made.
        for slot in removal.removed where slot.kind == .recovery && !removal.remaining.isEmpty {
            RecoveryKeyText.reportEnd(of: slot, in: common.vault.path)
        }
        if let warning = Self.warning(removal) { Console.report("warning: " + warning) }
    }

    private static func warning(_ removal: SlotEditor.Removal) -> String? {
        if removal.remaining.isEmpty { return "nothing opens this vault any more" }
        guard removal.remaining.allSatisfy(\.isLimited) else { return nil }
        guard let last = removal.remaining.compactMap(\.expires).max(),
            removal.remaining.allSatisfy({ $0.expires != nil })
        else { return "every slot that is left expires or has a play window: then nothing opens this vault" }
        return "every slot that is left expires: after \(last) nothing opens this vault"
    }
}
