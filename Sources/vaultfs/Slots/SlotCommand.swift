internal import ArgumentParser

/// `vaultfs slot list|add|remove|change`
struct SlotCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "slot", abstract: "The ways to open a vault: passphrases, keyfiles, recovery keys.",
        discussion: """
            Each slot opens the vault by itself. All of these commands work while the vault is mounted. The mount stays, \
            unless the change ends its slot.

            A slot that is removed or changed no longer opens this vaultfs.json. It still opens an older copy, and with it \
            everything in the vault that is encrypted under the same master key.
            """,
        subcommands: [SlotListCommand.self, SlotAddCommand.self, SlotRemoveCommand.self, SlotChangeCommand.self])
}
