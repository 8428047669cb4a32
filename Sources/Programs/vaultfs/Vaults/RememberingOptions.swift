internal import ArgumentParser
internal import LinuxSystem
internal import VaultFormat
internal import VaultStore

/// The options of commands that add a vault to the list of this user's vaults.
struct RememberingOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The vault's label in 'vaultfs list', at most \(KnownVaults.longestLabel) bytes. The directory's name unless given.",
            valueName: "text"))
    var label: String?

    @Flag(help: "Do not add the vault to the list of your vaults.")
    var noRemember = false

    func validate() throws {
        guard let label else { return }
        if noRemember { throw ValidationError("--label does not go with --no-remember") }
        guard KnownVaults.isValid(label) else {
            throw ValidationError(
                "not a label: '\(shown(label.utf8))': a word or several, without '/', at most \(KnownVaults.longestLabel) bytes"
            )
        }
    }

    /// Checks the label before anything is made or mounted.
    /// - Parameter directory: nil for a vault yet to be made.
    /// - Throws: code `usage` if another vault has the label; `failure` if the list cannot be read.
    func check(_ directory: VaultDirectory?) throws(CommandFailure) {
        guard let label, let other = try KnownVaults.read()[label] else { return }
        guard other.id == directory?.configuration.vault.hex else {
            throw KnownVaults.taken(label, by: other)
        }
    }

    /// Adds the vault, or changes it there, unless this is unwanted. Failures are warnings.
    func remember(_ directory: VaultDirectory, _ change: (inout KnownVault) -> Void = { _ in }) {
        if !noRemember { KnownVaults.remember(directory, label: label, change) }
    }
}
