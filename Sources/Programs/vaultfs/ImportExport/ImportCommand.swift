internal import ArgumentParser
internal import Daemon
internal import LinuxSystem
internal import Transfer
internal import VaultFileSystem
internal import VaultStore

/// `vaultfs import SOURCE VAULT[:PATH]`
struct ImportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import", abstract: "Encrypt files into a vault, without mounting it.",
        discussion: """
            If SOURCE is a directory, its contents go into the vault, or into the directory PATH in it. That directory is \
            made if only its last name is missing. If SOURCE is a file, it becomes the file PATH, or goes into the \
            directory of that name. Modes, owners, times, holes of 1 MiB and more and extended attributes are kept. What \
            is not permitted is counted, and makes the exit code \(FailureCode.notKept.rawValue). Links are copied as \
            links. An existing directory that is named as the destination keeps its own owner, mode, attributes and \
            times. Directories in it get those of the source.

            After an interruption, the same command goes on, also inside a large file. An object that is there with the \
            same type, size and time is skipped. A file with the same contents and another time gets the time of its \
            source. An unfinished file has a name that begins with .vaultfs-transfer-, and the next import goes on with it \
            or removes it. A file that is there and has other contents is an error, unless --overwrite is given. A file \
            that cannot be read, or that is changed during the import, is named on stderr. The others are imported, and \
            the exit code is \(FailureCode.incomplete.rawValue).

            The vault must not be mounted. SOURCE can be the mount of another encrypted file system, but not its encrypted \
            side, unless --force is given.
            """)

    @Argument(help: "A file or a directory.")
    var source: PathArgument

    @Argument(help: ArgumentHelp("The vault, and where in it.", valueName: "vault[:path]"), completion: .directory)
    var vault: PathArgument

    @OptionGroup
    var transfer: TransferArguments

    @Flag(help: "Make everything yours: do not keep the owners and groups of the source.")
    var noOwner = false

    @Flag(help: "Import a source that is the encrypted side of a vault, as it is.")
    var force = false

    @OptionGroup(title: "Secret options")
    var secret: VaultSecretOptions

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        let from = try LocalPath(source.path, mayBeMissing: false)
        let (directory, path) = try openVault()
        guard (try? from.root.isInside(directory.descriptor)) != true else {
            throw CommandFailure(.failure, "\(source.path.shown) is the vault or in it: choose another source")
        }
        if from.path.isEmpty, !force { try EncryptedSource.check(from.root, path: source.path) }
        let session = try VaultSession(directory, isReadOnly: false, secret: secret) {
            "copy to \($0) instead, or unmount it first"
        }
        let interruption = try Interruption {}
        try interruption.perform { try copy(from, to: path, session, interruption) }
    }

    private func openVault() throws -> (vault: VaultDirectory, path: [[UInt8]]) {
        do { return try vault.openVault() } catch VaultError.notFound(let path) {
            let error = CommandFailure(.notFound(path))
            throw CommandFailure(
                error.code, "\(error.message); make a vault there with 'vaultfs init \(path.quotedForShell)'")
        }
    }

    private func copy(
        _ from: LocalPath, to path: [[UInt8]], _ session: VaultSession, _ interruption: Interruption
    ) throws {
        let vault = session.directory
        let source = try TransferTarget.source(
            LocalTree<Workspace>(), from.root, from.path, shown: self.source.path.shown)
        let report = TransferReport(
            work: WorkReport(self.source.path, isJSON: transfer.json), source: self.source.path,
            isSingleFile: source.name != nil)
        var run = TransferRun(
            report: report, interruption: interruption, options: transfer.options, destination: vault.path,
            hasEnded: session.hasEnded, whileRunning: session.sealSometimes)
        run.options.dropsOwners = noOwner
        run.options.leftOut = FileIdentity(try vault.descriptor.status())
        func copy(into tree: FileSystemTree<VaultFileSystem>) throws {
            let target = try TransferTarget.destination(
                tree, tree.root, path, isDirectory: self.vault.endsWithSlash, for: from.fileName,
                shown: vault.path.shown, advice: ": make it first, on a mount or with another import")
            try VaultSession.withWorkspaces(for: vault.configuration) { try run.run(source, target, $0) }
        }
        // Seal the written files and make them durable even after an error.
        let result = Result {
            try copy(into: session.open())
            guard transfer.verify else { return }
            run.options.isComparing = true
            try copy(into: session.reopen())
        }
        try session.finish()
        try result.get()
        try report.finish("imported", to: vault.path, run.totals)
    }
}
