internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs slot list|add|remove|change`
struct SlotCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "slot", abstract: "Passphrases, keyfiles, recovery keys of a vault.",
        discussion: """
            Each slot opens the vault by itself. All of these commands work while the vault is mounted. The mount stays, \
            unless the change ends its slot.

            A slot that is removed or changed no longer opens this vaultfs.json. It still opens an older copy, and with it \
            everything in the vault that is encrypted under the same master key.
            """,
        subcommands: [SlotListCommand.self, SlotAddCommand.self, SlotRemoveCommand.self, SlotChangeCommand.self])
}

/// `vaultfs slot list VAULT`
struct SlotListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show the slots of a vault.",
        discussion: """
            Needs no secret: it then shows the content of vaultfs.json, which anybody who can write there may have \
            changed. With a secret from an option the content is authenticated.
            """)

    @OptionGroup
    var common: VaultArguments

    private struct Report: Encodable {
        let vaultPath: String
        let isAuthenticated, rekeyUnfinished: Bool
        let slots: [SlotReport]
    }

    func run() throws {
        ProcessSetup.protectMemory()
        let directory = try GivenVault.open(common.vault.path)
        let isAuthenticated = common.secret.options.isGiven
        if isAuthenticated { _ = try common.secret.open(directory) }
        let slots = directory.configuration.slots.map(SlotReport.init)
        if common.json {
            try Console.printJSON(
                Report(
                    vaultPath: common.vault.path.string, isAuthenticated: isAuthenticated,
                    rekeyUnfinished: directory.configuration.isRekeying, slots: slots))
            return
        }
        SlotReport.print(slots)
        if directory.configuration.isRekeying { print("A rekey is unfinished: run 'vaultfs rekey' again.") }
        if !isAuthenticated { print("Not authenticated: give a secret (--passfile …) to check it.") }
    }
}
