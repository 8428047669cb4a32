internal import ArgumentParser
internal import CLinux
internal import Daemon
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import Transfer
internal import VaultCrypto
internal import VaultStore
internal import ViewFileSystem
internal import ViewFormats

/// `vaultfs export VAULT[:PATH] DESTINATION` and `vaultfs export --view FORMAT SOURCE DESTINATION`
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Decrypt a vault, or other programs' AES-CBC files, to real files, without mounting.",
        discussion: """
            'export VAULT[:PATH] DESTINATION' decrypts a vault, or the object at PATH in it. The contents of a directory go \
            into the directory DESTINATION, which is made if it is missing. A file becomes the file DESTINATION, or goes \
            into the directory of that name. 'import' and 'export' keep and skip the same things and have the same exit \
            codes, with one exception: set-user-ID and set-group-ID bits of files, file capabilities and devices are left \
            behind and counted, unless --preserve-special is given, because anyone who can write to the vault's directory \
            can make them without a key. A damaged file is an error, and nothing of it is written. With --damaged the \
            parts that verify are written, the others become holes, each damaged file is listed with its ranges, and the \
            exit code is \(FailureCode.damageFound.rawValue). A damaged redo log is reported, with the same exit code, \
            and the files are exported without what it has lost. The vault must not be mounted read-write.

            'export --view FORMAT SOURCE DESTINATION' exports the files that 'vaultfs view FORMAT SOURCE' would show, with \
            the same options. Only you can read the copies. They keep their times. Links are copied as links. These \
            formats do not show whether a file was changed.

            After an interruption, the same command goes on, also inside a large file. An unfinished file has a name that \
            begins with .vaultfs-transfer-, in the directory that the file belongs to. A file that is there already is \
            kept. It is an error if it is not the same, unless --overwrite is given. A file that cannot be decrypted is \
            named on stderr, and so is a playlist whose segments stay encrypted. The others are exported, and the exit \
            code is \(FailureCode.incomplete.rawValue).
            """)

    @Option(name: .customLong("view"), help: ArgumentHelp("cbc-chunks, cbc, openssl, hls or mp4.", valueName: "format"))
    var formatName: ViewFormatName?

    @Argument(help: "A vault and a path in it, or the file or directory of a view.", completion: .directory)
    var source: PathArgument

    @Argument(help: "The file or directory that the plaintext goes to; - writes one file to standard output.")
    var destination: PathArgument

    @OptionGroup
    var transfer: TransferArguments

    @Flag(
        help:
            "Also export set-user-ID and set-group-ID bits, file capabilities and devices, which a vault does not authenticate."
    )
    var preserveSpecial = false

    @Flag(help: "Write the parts of damaged files that verify, and list the others.")
    var damaged = false

    @OptionGroup(title: "Format options")
    var options: ViewOptions

    @OptionGroup(title: "Secret options")
    var secret: VaultSecretOptions

    private var isToStandardOutput: Bool { destination.path.bytes == [UInt8(ascii: "-")] }

    func validate() throws {
        if isToStandardOutput, transfer.overwrite || transfer.verify || transfer.json || damaged {
            throw ValidationError("standard output takes no --overwrite, --verify, --json or --damaged")
        }
        if let formatName {
            try options.validate(for: formatName)
            let forVaults = [
                damaged ? "--damaged" : nil, preserveSpecial ? "--preserve-special" : nil,
                secret.options.keyfile != nil ? "--keyfile" : nil,
                secret.options.keyProvider?.option,
                secret.options.recoveryKey ? "--recovery-key" : nil,
            ].compactMap { $0 }
            if let option = forVaults.first { throw ValidationError("\(option) is for vaults, not for views") }
        } else {
            if let option = options.given.first {
                throw ValidationError("\(option) is for views: give --view too")
            }
            if damaged && transfer.verify { throw ValidationError("only one of --damaged, --verify can be given") }
        }
    }

    mutating func run() throws {
        ProcessSetup.protectMemory()
        if let formatName { try runView(formatName) } else { try runVault() }
    }

    func runVault() throws {
        ProcessSetup.raiseLimits()
        let (directory, path) = try source.openVault()
        let to = try localDestination()
        try check(to, isNotIn: directory.descriptor)
        let session = try VaultSession(directory, isReadOnly: true, secret: secret) {
            "copy from \($0) instead, or unmount it first"
        }
        var options = transfer.options
        options.savesDamaged = damaged
        options.dropsSpecial = !preserveSpecial
        options.leftOut = FileIdentity(try directory.descriptor.status())
        let interruption = try Interruption {}
        try interruption.perform {
            try VaultSession.withWorkspaces(for: session.directory.configuration) { workspaces in
                try export(
                    session.open(readsCutFiles: damaged), path, to, options, workspaces, interruption,
                    hasEnded: session.hasEnded, isLogDamaged: { !session.problems.isEmpty })
            }
        }
    }

    /// Decrypts a view on one thread, because a file with several names is read by the name looked up last.
    mutating func runView(_ formatName: ViewFormatName) throws {
        // The key files named by `--key` are looked up by absolute paths.
        try options.makeAbsolute()
        let view = ViewArguments(formatName: formatName, options: options)
        try view.check(secret.options.passphrase)
        let location = try view.location(try MountArguments.resolve(source.path))
        let to = try localDestination()
        // A single file may be exported into its own directory.
        if location.onlyName == nil { try check(to, isNotIn: location.root) }
        let secret = try view.readSecret(self.secret.options.passphrase)
        let secrets = try ViewSecrets(view.origin, secret: secret.count > 0 ? secret : nil, isLockable: false)
        let viewed = try view.source(location, secrets: secrets, keyFile: secret, log: Console.report)
        let system = try ViewFileSystem(
            source: viewed, secrets: secrets, gate: LockGate(), cacheSize: ViewWorkspace.pageSize,
            logger: Logger(label: "vaultfs"), isMounted: false)
        let name = location.onlyName
        var copying = transfer.options
        copying.contentsOnly = true
        // Leave the source out, because the destination can be above it, and a directory in it can lead back to it.
        if name == nil { copying.leftOut = FileIdentity(try location.root.status()) }
        let interruption = try Interruption { viewed.keys.stop() }
        try interruption.perform {
            try export(
                FileSystemTree(system), name.map { [$0] } ?? [], to, copying, [system.makeWorkspace()], interruption,
                left: { viewed.left }, survey: { $0.run(LocalTree<ViewWorkspace>(), location.root, name) })
            system.endDeferred()
        }
    }

    /// Returns nil for standard output.
    private func localDestination() throws(CommandFailure) -> LocalPath? {
        isToStandardOutput ? nil : try LocalPath(destination.path, mayBeMissing: true)
    }

    /// Refuses a destination in the source.
    private func check(_ to: LocalPath?, isNotIn root: Descriptor) throws(CommandFailure) {
        guard let to else { return }
        guard (try? to.root.isInside(root)) != true else {
            throw CommandFailure(
                .failure, "\(destination.path.shown) is the source or in it: choose another destination")
        }
    }

    private func export<System: FileSystem>(
        _ tree: FileSystemTree<System>, _ path: [[UInt8]], _ to: LocalPath?, _ options: TransferOptions,
        _ workspaces: [System.Workspace], _ interruption: Interruption,
        hasEnded: @escaping @Sendable () -> Bool = { false }, isLogDamaged: () -> Bool = { false },
        left: () -> [(path: [UInt8], text: String)] = { [] },
        survey: (@Sendable (TransferSurvey) -> Void)? = nil
    ) throws {
        let from = try TransferTarget.source(tree, tree.root, path, shown: source.path.shown)
        guard let to else {
            return try write(from, workspaces[0], hasEnded: hasEnded, isLogDamaged: isLogDamaged)
        }
        // A file exported into a directory keeps its name.
        let target = try TransferTarget.destination(
            LocalTree<System.Workspace>(), to.root, to.path, isDirectory: destination.endsWithSlash, for: from.name,
            shown: destination.path.shown, advice: ": make it first")
        // Refuse a vault, because a later export would take its files for unfinished ones.
        guard try target.tree.find(VaultDirectory.configurationEntry.bytes, in: target.directory) == nil else {
            throw CommandFailure(.failure, "\(destination.path.shown) is a vault: choose another destination")
        }
        let report = TransferReport(
            work: WorkReport(source.path, isJSON: transfer.json), source: source.path, view: formatName?.rawValue,
            isSingleFile: from.name != nil,
            advice: formatName == nil && !damaged
                ? ": put back what is damaged from a backup, or save the rest of it with --damaged" : "")
        var run = TransferRun(
            report: report, interruption: interruption, options: options, destination: destination.path,
            hasEnded: hasEnded)
        try run.run(from, target, workspaces, survey: survey)
        count(hidden: tree.hiddenNames, &run.totals, report)
        for (path, text) in left() {
            run.totals.failed += 1
            report.addFailure(path, text)
        }
        try synchronize(target.directory)
        if transfer.verify {
            run.options.isComparing = true
            try run.run(from, target, workspaces, survey: survey)
        }
        // Check the log last, because some damage is found only when a file is opened.
        try report.finish("exported", to: destination.path, run.totals, isLogDamaged: isLogDamaged())
    }

    /// Writes one file to standard output: only verified bytes, up to the first damaged one.
    /// - Throws: code `damageFound`, also if `isLogDamaged` returns true in the end.
    private func write<System: FileSystem>(
        _ from: TransferTarget<FileSystemTree<System>>, _ workspace: System.Workspace, hasEnded: () -> Bool,
        isLogDamaged: () -> Bool
    ) throws {
        let (tree, shown) = (from.tree, source.path.shown)
        guard let name = from.name, let item = try tree.find(name, in: from.directory),
            try tree.status(of: item).st_mode & S_IFMT == S_IFREG
        else { throw CommandFailure(.usage, "\(shown) is no regular file: only one can go to standard output") }
        var offset: UInt64 = 0
        do throws(StoreError) {
            let content = try tree.open(item, workspace)
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 16)
            defer {
                buffer.fill(with: 0)
                buffer.deallocate()
            }
            while !hasEnded() {
                let count = try tree.read(content, at: offset, into: buffer, workspace)
                if count == 0 { break }
                try writeAll(Array(buffer[..<count]), to: STDOUT_FILENO)
                offset += UInt64(count)
            }
        } catch .damaged(let reason) {
            throw CommandFailure(
                .damageFound, "\(shown): damaged after \(offset) bytes, which were written: \(reason)")
        } catch {
            throw CommandFailure(.failure, "\(shown): after \(offset) bytes: \(error.reason)")
        }
        if hasEnded() { throw CommandFailure(.wrongSecret, "\(shown): the slot expired after \(offset) bytes") }
        if isLogDamaged() {
            throw CommandFailure(.damageFound, "\(shown): vaultfs.log is damaged: the last changes may be missing")
        }
    }

    /// Counts the names left out because they do not authenticate.
    private func count(hidden: Int, _ totals: inout TransferTotals, _ report: TransferReport) {
        if hidden == 0 { return }
        let message =
            "\(AmountText.counted(hidden, "damaged name")) left out: 'vaultfs verify' lists them"
        if damaged {
            totals.damaged += hidden
            report.work.addDamage([], [], message)
        } else {
            totals.failed += hidden
            report.addFailure([], message)
        }
    }

    /// Makes the copies durable, syncfs(2).
    private func synchronize(_ directory: Descriptor) throws {
        do throws(StoreError) {
            let opened = try directory.openedForReading()
            try retrying { linux_syncfs(opened.fd) }
        } catch {
            throw CommandFailure(.failure, "cannot make \(destination.path.shown) durable: \(error.errno)")
        }
    }
}
