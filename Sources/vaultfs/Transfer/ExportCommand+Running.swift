internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import Transfer
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultStore
internal import ViewFileSystem
internal import ViewFormats

extension ExportCommand {
    /// Decrypts a vault, or the object at a path in it.
    func runVault() throws {
        ProcessSetup.raiseLimits()
        let (directory, path) = try source.open()
        let to = try LocalPath(destination.path, mayBeMissing: true)
        let root = try Descriptor(at: directory.root.rawValue, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        try check(to, isNotIn: root)
        let session = try VaultSession(directory, isReadOnly: true, opener: self) {
            "copy from \($0) instead, or unmount it first"
        }
        let run = TransferRun(
            report: TransferReport(source: source.whole, isJSON: transfer.json), interruption: try Interruption(),
            destination: destination.path, hasEnded: session.hasEnded)
        var options = transfer.options
        options.savesDamaged = damaged
        options.dropsSpecial = !preserveSpecial
        options.leftOut = try root.status()
        try run.perform {
            let tree = try session.open(readsCutFiles: damaged)
            try export(run, tree, path, to, options, session.makeWorkspaces())
        }
    }

    /// Decrypts a view. One thread: a file with several names is read by the name that was looked up last.
    mutating func runView(_ formatName: ViewFormatName) throws {
        // Key files that `--key` names are looked up by absolute paths.
        try options.makeAbsolute()
        let view = ViewArguments(formatName: formatName, options: options)
        try view.check(passphrase)
        let location = try ViewLocation(try MountArguments.resolve(source.whole))
        try view.check(location)
        try view.check(try location.manifest())
        let to = try LocalPath(destination.path, mayBeMissing: true)
        // A file may be exported into its own directory.
        if location.onlyName == nil { try check(to, isNotIn: location.root) }
        let secret = try view.readSecret(passphrase)
        let secrets = try ViewSecrets(view.origin, secret: secret.count > 0 ? secret : nil, isLockable: false)
        let viewed = try view.source(location, secrets: secrets, keyFile: secret, log: Console.report)
        let system = try ViewFileSystem(
            source: viewed, secrets: secrets, gate: LockGate(), cacheSize: ViewWorkspace.pageSize,
            logger: Logger(label: "vaultfs"), isMounted: false)
        let run = TransferRun(
            report: TransferReport(source: source.whole, view: formatName.rawValue, isJSON: transfer.json),
            interruption: try Interruption { viewed.keys.stop() }, destination: destination.path)
        var copying = transfer.options
        copying.contentsOnly = true
        // The destination can be above the source, and a directory in the source can lead back to it.
        if location.onlyName == nil { copying.leftOut = try location.root.status() }
        let name = location.onlyName
        try run.perform {
            try export(run, FileSystemTree(system), name.map { [$0] } ?? [], to, copying, [system.makeWorkspace()]) {
                $0.run(LocalTree<ViewWorkspace>(), location.root, name)
            }
            system.endDeferred()
        }
    }

    /// Nothing is made in the source.
    private func check(_ to: LocalPath, isNotIn root: Descriptor) throws(CommandFailure) {
        guard (try? to.root.isInside(root)) != true else {
            throw CommandFailure(
                .failure, "\(destination.path.shown) is the source or in it: choose another destination")
        }
    }

    private func export<System: TransferableFileSystem>(
        _ run: TransferRun, _ tree: FileSystemTree<System>, _ path: [[UInt8]], _ to: LocalPath,
        _ transferOptions: TransferOptions, _ workspaces: [System.Workspace],
        survey: (@Sendable (TransferSurvey) -> Void)? = nil
    ) throws {
        let local = LocalTree<System.Workspace>()
        let from = try TransferTarget.source(tree, tree.root, path, shown: source.whole.shown)
        // A file that goes into a directory keeps its name.
        let target = try TransferTarget.destination(
            local, to.root, to.path, for: from.name, shown: destination.path.shown)
        // A later export would take the vault's files for unfinished ones.
        guard try local.find(Array(VaultDirectory.configurationEntry.utf8), in: target.directory) == nil else {
            throw CommandFailure(.failure, "\(destination.path.shown) is a vault: choose another destination")
        }
        var options = transferOptions
        options.beginCopying()
        var totals = try run.run((tree, from), (local, target), options, workspaces, survey: survey)
        count(hidden: tree.hiddenNames, &totals, run.report)
        try Self.synchronize(target.directory, destination.path)
        var compared: TransferTotals?
        if transfer.verify {
            options.isComparing = true
            compared = try run.run((tree, from), (local, target), options, workspaces, survey: survey)
        }
        try run.report.finish("exported", to: destination.path, totals, compared: compared)
    }

    /// Counts the names that were left out because they do not authenticate.
    private func count(hidden: Int, _ totals: inout TransferTotals, _ report: TransferReport) {
        if hidden == 0 { return }
        let message =
            "\(AmountText.counted(hidden, "name")) that did not authenticate left out: 'vaultfs verify' lists them"
        if damaged {
            totals.damaged += hidden
            report.addDamage([], [], message)
        } else {
            totals.failures += hidden
            report.addFailure([], message)
        }
    }

    /// Makes the copies durable, syncfs(2).
    private static func synchronize(_ directory: Descriptor, _ path: FilePath) throws {
        do throws(StoreError) {
            let opened = try Descriptor(at: directory.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
            try retrying { linux_syncfs(opened.fd) }
        } catch {
            throw CommandFailure(.failure, "cannot make \(path.shown) durable: \(error.errno)")
        }
    }
}
