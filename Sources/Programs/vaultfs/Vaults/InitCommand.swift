internal import ArgumentParser
internal import CLinux
internal import Daemon
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs init VAULT`
struct InitCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "init", abstract: "Make a vault.",
        discussion: """
            Asks for a passphrase twice and prints a recovery key, which opens the vault if the passphrase is lost. \
            The directory is made, or must be empty.
            """)

    @OptionGroup
    var common: VaultArguments

    @Option(help: ArgumentHelp("Bytes encrypted as a unit: a power of two from 4K to 1M.", valueName: "size"))
    var chunkSize = ByteSize(4096)

    @OptionGroup
    var kdf: KdfOptions

    @Option(
        help: ArgumentHelp(
            "Size of the log for overwritten data: 1M to 1G, and at least 8 chunks. 64M unless given.",
            valueName: "size"))
    var logSize: ByteSize?

    @Flag(help: "Do not make a recovery key.")
    var noRecoveryKey = false

    @OptionGroup
    var remembering: RememberingOptions

    private struct Report: Encodable {
        let vaultPath, vaultID: String
        let chunkSize: Int
        let recoveryKey: String?
    }

    func validate() throws {
        guard ChunkLayout.isValid(chunkSize: chunkSize.bytes) else {
            throw ValidationError("chunk size \(chunkSize) is not a power of two from 4K to 1M")
        }
        if let provider = common.secret.options.keyProvider {
            throw ValidationError("\(provider.option) does not go with init, but with an existing vault")
        }
        guard !common.secret.options.recoveryKey else {
            throw ValidationError("--recovery-key does not go with init, which makes a recovery key of its own")
        }
        if let logSize, !LogHeader.isValid(size: logSize.bytes, ChunkLayout(chunkSize: chunkSize.bytes)) {
            throw ValidationError("log size \(logSize) is not from 1M to 1G, or under 8 chunks")
        }
    }

    func run() throws {
        ProcessSetup.protectMemory()
        try VaultCreation.check(at: common.vault.path)
        try remembering.check(at: common.vault.path)
        var slots = [SlotRequest(secret: try common.secret.options.readNew(), cost: try kdf.given() ?? .standard)]
        let recoveryKey = noRecoveryKey ? nil : try NewRecoveryKey.make()
        if let recoveryKey { slots.append(SlotRequest(secret: recoveryKey.secret)) }
        var traits = StoreTraits()
        // Show the recovery key before the vault exists.
        try VaultCreation.create(
            at: common.vault.path, chunkSize: chunkSize.bytes, logSize: logSize.map { UInt64($0.bytes) }, slots: slots,
            onStore: { traits = $0 },
            onReady: { (configuration) throws(VaultError) in
                do throws(CommandFailure) {
                    let report = Report(
                        vaultPath: common.vault.path.string, vaultID: configuration.vault.hex,
                        chunkSize: configuration.chunkSize, recoveryKey: recoveryKey?.text)
                    if common.json { try Console.write(Console.json(report)) }
                    if !common.json, let recoveryKey {
                        try Console.write(RecoveryKeyText.shown(recoveryKey.text) + "\n\n")
                    }
                } catch {
                    throw .refused("no vault was made: \(error.message)")
                }
            })
        if let directory = try? VaultDirectory.open(MountArguments.resolve(common.vault.path)) {
            remembering.remember(directory)
        }
        if let root = try? Descriptor(path: common.vault.path, flags: O_RDONLY | O_DIRECTORY) {
            for warning in StoreText.warnings(traits, root, common.vault.path) { Console.report("warning: \(warning)") }
        }
        if !common.json {
            Console.confirm("Made a vault in \(common.vault.path.shown). Mount it:\n\n  \(mountCommand)")
        }
    }

    /// The command that mounts the new vault, ready to paste.
    private var mountCommand: String {
        let keyfile = common.secret.options.keyfile.map { ["--keyfile", $0.path.quotedForShell] } ?? []
        let paths = [common.vault.path, suggestedMountpoint].map(\.quotedForShell)
        return (["vaultfs", "mount"] + paths + keyfile).joined(separator: " ")
    }

    /// A missing directory for the mount: beside the new vault, or in the home directory if the vault is on another
    /// disk, which may be pulled out.
    private var suggestedMountpoint: FilePath {
        let given = common.vault.path
        // Resolve a path without a name of its own, such as `.`.
        let path = given.lastComponent?.kind == .regular ? given : (try? ResolvedPath.of(given)) ?? given
        var directory = path.removingLastComponent()
        if let home = getenv("HOME").map({ FilePath(platformString: $0) }), home.isAbsolute,
            let disk = Self.device(of: home), disk != Self.device(of: directory)
        {
            directory = home
        }
        let usual = directory.appending("Private")
        let other = (path.lastComponent.map { FilePath(root: nil, [$0]).bytes } ?? []) + Array(".open".utf8)
        return Mountpoint.isMissing(usual) ? usual : directory.appending(FilePath(bytes: other).components)
    }

    private static func device(of directory: FilePath) -> dev_t? {
        try? Descriptor(path: directory.isEmpty ? "." : directory, flags: linux_O_PATH | O_DIRECTORY).status().st_dev
    }
}
