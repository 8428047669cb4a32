internal import ArgumentParser

/// `vaultfs slot list|add|remove|change`
struct SlotCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "slot", abstract: "The ways to open a vault: passphrases, keyfiles, recovery keys.",
        discussion: """
            Each slot opens the vault by itself. All of these work while the vault is mounted, and the mount goes on, unless its slot's end has come with the change.

            A slot that is removed or changed no longer opens this vaultfs.json. It still opens a copy that somebody \
            made before, and with it whatever of the vault is encrypted under the same master key.
            """,
        subcommands: [SlotListCommand.self, SlotAddCommand.self, SlotRemoveCommand.self, SlotChangeCommand.self])
}
