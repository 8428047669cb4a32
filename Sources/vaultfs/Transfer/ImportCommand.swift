internal import ArgumentParser
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer
internal import VaultFileSystem
internal import VaultStore

/// `vaultfs import SOURCE VAULT[:PATH]`
struct ImportCommand: ParsableCommand, VaultOpener {
    static let configuration = CommandConfiguration(
        commandName: "import", abstract: "Encrypt a file or a tree into a vault, without mounting it.",
        discussion: """
            If SOURCE is a directory, its contents go into the vault, or into the directory PATH in it. That directory is \
            made if only its last name is missing. If SOURCE is a file, it becomes the file PATH, or goes into the \
            directory of that name. Modes, owners, times, holes of 1 MiB and more and extended attributes are kept. What \
            is not permitted is counted, and makes the exit code \(FailureCode.notKept.rawValue). Links are copied as \
            links. An existing directory that is named as the destination keeps its own owner, mode, attributes and \
            times. Directories in it get those of the source.

            After an interruption, the same command goes on. An object that is there with the same type, size and time \
            is skipped. A file with the same contents and another time gets the time of its source. An unfinished file \
            has a name that begins with .vaultfs-transfer-, and the next import removes it. A file that is there and has \
            other contents is an error, unless --overwrite is given. A file that cannot be read, or that is changed \
            during the import, is named on stderr. The others are imported, and the exit code is \
            \(FailureCode.incomplete.rawValue).

            The vault must not be mounted. SOURCE can be the mount of another encrypted file system.
            """)

    @Argument(help: "A file or a directory.")
    var source: PathArgument

    @Argument(help: ArgumentHelp("The vault, and where in it.", valueName: "vault[:path]"))
    var vault: VaultPathArgument

    @OptionGroup
    var transfer: TransferArguments

    @OptionGroup(title: "Secret options")
    var passphrase: PassphraseOptions

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions

    func validate() throws {
        try validateSecret()
    }

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        let from = try LocalPath(source.path, mayBeMissing: false)
        let (directory, path) = try vault.open()
        let root = try Descriptor(at: directory.root.rawValue, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        guard (try? from.root.isInside(root)) != true else {
            throw CommandFailure(.failure, "\(source.path.shown) is the vault or in it: choose another source")
        }
        let session = try VaultSession(directory, isReadOnly: false, opener: self) {
            "copy to \($0) instead, or unmount it first"
        }
        let run = TransferRun(
            report: TransferReport(source: source.path, isJSON: transfer.json), interruption: try Interruption(),
            destination: directory.path, hasEnded: session.hasEnded, whileRunning: session.sealSometimes)
        try run.perform { try perform(run, session, from, path, leavingOut: root.status()) }
    }

    private func perform(
        _ run: TransferRun, _ session: VaultSession, _ from: LocalPath, _ path: [[UInt8]], leavingOut root: stat
    ) throws {
        let (local, workspaces) = (LocalTree<Workspace>(), try session.makeWorkspaces())
        let source = try TransferTarget.source(local, from.root, from.path, shown: self.source.path.shown)
        let shown = session.directory.path.shown
        var options = transfer.options
        options.leftOut = root
        options.beginCopying()
        let transferred = { (tree: FileSystemTree<VaultFileSystem>) throws in
            let target = try TransferTarget.destination(tree, tree.root, path, for: from.fileName, shown: shown)
            return try run.run((local, source), (tree, target), options, workspaces)
        }
        var compared: TransferTotals?
        let totals = try finishing(session) {
            let totals = try transferred(try session.open())
            if transfer.verify {
                options.isComparing = true
                compared = try transferred(try session.reopen())
            }
            return totals
        }
        try run.report.finish("imported", to: session.directory.path, totals, compared: compared)
    }

    /// Runs `body`, and then seals what was written and makes it durable, also if `body` throws.
    private func finishing(
        _ session: VaultSession, _ body: () throws -> TransferTotals
    ) throws -> TransferTotals {
        let result = Result { try body() }
        try session.finish()
        return try result.get()
    }
}
