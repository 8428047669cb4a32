internal import ArgumentParser
internal import Control
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs info VAULT`, `vaultfs info --view FILE|DIRECTORY`
struct InfoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "info", abstract: "Show the properties of a vault that need no key.")

    @Argument(help: "The vault directory; with --view, a file or a directory of files.")
    var path: PathArgument

    @Flag(help: "Show which format of 'vaultfs view' files may be in.")
    var view = false

    @Flag(help: "Print JSON.")
    var json = false

    func run() throws {
        if view {
            return try ViewInfo(path.path).print(asJSON: json)
        }
        let directory = try GivenVault.open(path.path)
        let report = VaultReport(directory, user: VaultUse.find(directory))
        if json { try Console.printJSON(report) } else { report.printText() }
    }
}

/// The output of `info`. `--json` has the names of the fields.
private struct VaultReport: Encodable {
    struct Mount: Encodable {
        let pid: Int32
        let command, mountpoint: String?
        /// The other machine of the process, or the machine on which it may run.
        let host: String?
    }

    let vaultPath: String
    let formatVersion = 1
    let vaultID: String
    let chunkSize: Int
    let features: [String]
    let generation: UInt64
    /// The number of rekeys.
    let epoch: Int
    let rekeyUnfinished: Bool
    let slots: [SlotReport]
    let mounted: Mount?
    /// The traits found by the mount, or without a mount those that reading shows.
    let store: StoreTraits

    init(_ directory: VaultDirectory, user: VaultUse.User?) {
        let configuration = directory.configuration
        vaultPath = directory.path.string
        vaultID = configuration.vault.hex
        chunkSize = configuration.chunkSize
        features = configuration.features
        generation = configuration.generation
        epoch = Int(configuration.epochs.current)
        rekeyUnfinished = configuration.isRekeying
        slots = configuration.slots.map(SlotReport.init)
        store = user?.status?.store ?? StoreTraits(reading: directory.descriptor)
        mounted = user.map { user in
            Mount(
                pid: user.owner.processID, command: user.owner.command, mountpoint: user.status?.mountpoint,
                host: user.owner.host)
        }
    }

    func printText() {
        Console.printField("vault", FilePath(vaultPath).shown)
        Console.printField("format", "\(formatVersion)")
        Console.printField("id", vaultID)
        Console.printField("chunk size", "\(chunkSize) bytes")
        Console.printField("features", features.isEmpty ? "none" : features.joined(separator: ", "))
        if epoch > 0 {
            Console.printField(
                "rekeyed",
                AmountText.counted(epoch, "time") + (rekeyUnfinished ? ", unfinished: run 'vaultfs rekey' again" : ""))
        }
        SlotReport.print(slots)
        Console.printField("store lacks", StoreText.lacks(store))
        Console.printField("in use", mounted.map(Self.text) ?? "no")
    }

    private static func text(_ mount: Mount) -> String {
        let command = mount.command.map { " (\($0))" } ?? ""
        return "by process \(mount.pid)\(command)" + (mount.host.map { " on \(Console.shown($0))" } ?? "")
            + (mount.mountpoint.map { " at \(Console.shown($0))" } ?? "")
    }
}
