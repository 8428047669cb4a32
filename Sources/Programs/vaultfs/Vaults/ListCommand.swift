internal import ArgumentParser
internal import Control
internal import Glibc
internal import LinuxSystem
internal import SystemPackage

/// `vaultfs list`
struct ListCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Show your vaults.",
        discussion: """
            These are the vaults that you have made or mounted, with the labels that commands take instead of a path, and \
            their states. A vault is absent if its disk is, or if it was moved: mount it by its new path. With --json: an \
            array of objects.
            """)

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        let list = try KnownVaults.read()
        // Another user's daemon may claim any path, so root does not count its answers.
        let answers = (list.vaults.isEmpty ? [] : try MountAnswer.askAll(.status)).filter { answer in
            answer.socket.map { $0.userID == geteuid() } ?? true
        }
        // Each on a thread of its own, because a disk may not answer.
        let listed = ParallelWork.map(list.vaults) { ListedVault.all(of: $0, answers) }.flatMap { $0 }
        if json { return try Console.printJSON(listed) }
        if listed.isEmpty {
            return Console.confirm("No vault is known: 'vaultfs init' makes one, and 'vaultfs mount' remembers it.")
        }
        let rows = listed.map { row in
            [row.label, row.state, row.mountedAt ?? "-", row.path].map(Console.shown)
        }
        Console.printTable([["LABEL", "STATE", "MOUNTPOINT", "VAULT"]] + rows)
    }
}

/// A row of `list`. A vault with several mounts has several. `--json` has the names of the fields.
private struct ListedVault: Encodable, Sendable {
    let id, label, path: String
    /// The mount's state, `dead` or `unknown` without an answer. Else `unmounted`, or `absent` if the path is empty.
    let state: String
    /// Nil if it is not mounted.
    let mountedAt: String?
    /// The last mountpoint and its options, with which `mount LABEL` mounts.
    let mountpoint: String?
    let options: [String]?

    private init(_ vault: KnownVault, _ state: String, at mountedAt: String? = nil) {
        (id, label, path) = (vault.id, vault.label, vault.path)
        (self.state, self.mountedAt) = (state, mountedAt)
        (mountpoint, options) = (vault.mountpoint, vault.options)
    }

    static func all(of vault: KnownVault, _ answers: [MountAnswer]) -> [ListedVault] {
        let rows = answers.compactMap { answer -> ListedVault? in
            switch answer.outcome {
            case .answered(.status(let status)):
                status.vaultID == vault.id && status.vaultPath == vault.path
                    ? ListedVault(vault, status.state, at: status.mountpoint) : nil
            case _ where answer.source != vault.path: nil
            case .dead: ListedVault(vault, "dead", at: answer.mountpoint)
            case .unreachable, .answered: ListedVault(vault, "unknown", at: answer.mountpoint)
            }
        }
        if !rows.isEmpty { return rows }
        let path = FilePath(vault.path)
        let isThere = withinTime(milliseconds: 1000) { GivenVault.isOne(path) }
        return [ListedVault(vault, isThere.map { $0 ? "unmounted" : "absent" } ?? "unknown")]
    }
}

/// `vaultfs forget LABEL`
struct ForgetCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "forget", abstract: "Remove a vault from the list of your vaults.",
        discussion: "The vault itself stays as it is.")

    @Argument(help: "The vault's label.", completion: Completions.labels)
    var label: String

    func run() throws {
        var isKnown = false
        try KnownVaults.update { isKnown = $0.forget(label) }
        guard isKnown else {
            throw CommandFailure(
                .notAVault, "no vault has the label '\(shown(label.utf8))': 'vaultfs list' shows your vaults")
        }
        Console.confirm("\(shown(label.utf8)): no longer in the list; the vault itself stays")
    }
}
