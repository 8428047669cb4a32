internal import ArgumentParser
internal import Daemon
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
            changed. With a secret from an option the content is authenticated, and the slots that the secret opens are \
            named. --slot asks for a secret on the terminal, and checks if it opens that slot.
            """)

    @OptionGroup
    var common: VaultArguments

    private struct Report: Encodable {
        let vaultPath: String
        let isAuthenticated, rekeyUnfinished: Bool
        /// The ids of the slots opened by the secret. Nil without a secret.
        let openedSlots: [Int]?
        let slots: [SlotReport]
    }

    func run() throws {
        ProcessSetup.protectMemory()
        let directory = try GivenVault.open(common.vault.path)
        let isAuthenticated = common.secret.options.isGiven || common.secret.slot != nil
        let opened = isAuthenticated ? try openedSlots(of: directory) : []
        let slots = directory.configuration.slots.map(SlotReport.init)
        if common.json {
            try Console.printJSON(
                Report(
                    vaultPath: common.vault.path.string, isAuthenticated: isAuthenticated,
                    rekeyUnfinished: directory.configuration.isRekeying,
                    openedSlots: isAuthenticated ? opened.map(\.id).sorted() : nil,
                    slots: slots))
            return
        }
        SlotReport.print(slots)
        if directory.configuration.isRekeying { print("A rekey is unfinished: run 'vaultfs rekey' again.") }
        if isAuthenticated {
            print("Authenticated: the secret opens \(SlotReport.names(opened)).")
        } else {
            print(
                "Not authenticated. To check it, and see which slot a secret opens, give the secret: --passfile …, or --slot SLOT."
            )
        }
    }

    /// Returns the slots opened by the secret. With --slot, tries only that one.
    private func openedSlots(of directory: VaultDirectory) throws -> [KeySlot] {
        let opened = try common.secret.open(directory)
        let others =
            try common.secret.slot == nil
            ? directory.configuration.slots(openedBy: opened.secret, except: opened.slot.id) : []
        return [opened.slot] + others
    }
}
