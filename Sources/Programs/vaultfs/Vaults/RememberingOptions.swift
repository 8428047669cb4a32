internal import ArgumentParser
internal import FoundationEssentials
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// The options of commands that add a vault to the list of this user's vaults.
struct RememberingOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            """
            The vault's label in 'vaultfs list', at most \(KnownVaults.longestLabel) bytes. The directory's name unless \
            given.
            """, valueName: "text"))
    var label: String?

    @Flag(help: "Do not add the vault to the list of your vaults.")
    var noRemember = false

    func validate() throws {
        guard let label else { return }
        if noRemember { throw ValidationError("--label does not go with --no-remember") }
        guard KnownVaults.isValid(label) else {
            throw ValidationError(
                "not a label: '\(shown(label.utf8))': words without '/', at most \(KnownVaults.longestLabel) bytes")
        }
    }

    /// Checks the label before anything is made or mounted.
    /// - Parameters:
    ///   - directory: nil for a vault yet to be made.
    ///   - path: the vault's. It replaces an old vault at this path.
    /// - Throws: code `usage` if another vault has the label; `failure` if the list cannot be read.
    func check(_ directory: VaultDirectory? = nil, at path: FilePath) throws(CommandFailure) {
        guard let label, let other = try KnownVaults.read()[label] else { return }
        if let directory, try KnownVaults.entry(of: directory) == other { return }
        let here = FilePath(FileManager.default.currentDirectoryPath)
        guard FilePath(other.path) == here.pushing(path).lexicallyNormalized() else {
            throw KnownVaults.taken(label, by: other)
        }
    }

    /// Adds the vault, or changes it there, unless this is unwanted. Failures are warnings.
    func remember(_ directory: VaultDirectory, _ change: (inout KnownVault) -> Void = { _ in }) {
        if !noRemember { KnownVaults.remember(directory, label: label, change) }
    }
}
