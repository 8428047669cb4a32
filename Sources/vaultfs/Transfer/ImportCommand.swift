internal import ArgumentParser
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import Transfer
internal import VaultStore

/// `vaultfs import SOURCE VAULT[:PATH]`
struct ImportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "import", abstract: "Encrypt a file or a tree into a vault, without mounting it.",
        discussion: """
            What is in a SOURCE that is a directory goes into the vault, or into the directory PATH in it, which is made \
            if only its last name is missing. A SOURCE that is a file becomes the file PATH, or goes into the directory of \
            that name. Modes, owners, times, links, holes of 1 MiB and more and extended attributes are kept; what is not \
            permitted is counted, and makes the exit code \(FailureCode.notKept.rawValue). Links are copied as links. A directory \
            that is there and was named as the destination keeps its own owner, mode, attributes and times; directories in \
            it get those of the source.

            Interrupted, the same command goes on where it was: what is there with the same type, size and time is \
            skipped, a file with the same contents and another time gets that of its source, and what is not whole has a \
            name that begins with .vaultfs-transfer-, which the next import removes. A file that is there and has other \
            contents is an error, unless --overwrite is given. A file that cannot be read, or is \
            written to meanwhile, is named on stderr, the others are imported, and the exit code is \
            \(FailureCode.incomplete.rawValue).

            The vault must not be mounted. A SOURCE may be the mount of another encrypted file system.
            """)

    @Argument(help: "A file or a directory.")
    var source: PathArgument

    @Argument(help: ArgumentHelp("The vault, and where in it.", valueName: "vault[:path]"))
    var vault: VaultPathArgument

    @OptionGroup
    var transfer: TransferArguments

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions

    func run() throws {
        ProcessSetup.protectMemory()
        ProcessSetup.raiseLimits()
        let from = try LocalPlace(source.path, mayBeMissing: false)
        let (directory, path) = try vault.open()
        let root = try Descriptor(at: directory.root.rawValue, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        guard (try? from.root.isInside(root)) != true else {
            throw CommandFailure(.failure, "\(source.path.shown) is the vault or in it: choose another source")
        }
        let session = try VaultSession(directory, isReadOnly: false, secret: secret, slots: slots) {
            "copy to \($0) instead, or unmount it first"
        }
        let run = TransferRun(
            report: TransferReport(source: source.path, isJSON: transfer.json), interruption: try Interruption {},
            lease: session.lease, workspaces: try session.makeWorkspaces(), whileRunning: session.sealSometimes,
            destination: directory.path)
        do {
            try perform(run, session, from, path, leavingOut: root.status())
        } catch {
            run.endIfInterrupted(error)
            throw error
        }
    }

    private func perform(
        _ run: TransferRun, _ session: VaultSession, _ from: LocalPlace, _ path: [[UInt8]], leavingOut root: stat
    ) throws {
        let local = LocalTree()
        let source = try TransferTarget.source(local, from.root, from.path, shown: self.source.path.shown)
        let shown = session.directory.path.shown
        var options = transfer.options
        options.leftOut = root
        options.beginCopying()
        let transferred = { (tree: VaultTree) throws in
            let target = try TransferTarget.destination(tree, tree.root, path, for: from.fileName, shown: shown)
            return try run.run((local, source), (tree, target), options)
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

    /// What was written is sealed and durable when this returns, and when it throws.
    private func finishing(
        _ session: VaultSession, _ body: () throws -> TransferTotals
    ) throws -> TransferTotals {
        let result = Result { try body() }
        try session.finish()
        return try result.get()
    }
}
