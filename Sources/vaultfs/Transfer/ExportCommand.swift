internal import ArgumentParser
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import Transfer
internal import VaultCrypto
internal import ViewFileSystem
internal import ViewFormats

/// `vaultfs export VAULT[:PATH] DESTINATION` and `vaultfs export --view FORMAT SOURCE DESTINATION`
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export",
        abstract: "Decrypt a vault, or other programs' AES-CBC files, to real files, without mounting.",
        discussion: """
            'export VAULT[:PATH] DESTINATION' decrypts a vault, or what is at PATH in it: a directory into the directory \
            DESTINATION, which is made; a file to the file DESTINATION, or into the directory of that name. What is kept, \
            what is skipped and the exit codes are as for 'import', but for set-user-ID and set-group-ID bits of files, file \
            capabilities and devices: whoever can write to the vault's directory can make them without a key, so they are \
            left behind, and counted, unless --preserve-special is given. A damaged file is an error, and nothing of it is \
            written; with --damaged what verifies is, the rest being a hole, each is listed with its ranges, and the exit \
            code is \(FailureCode.damageFound.rawValue). The vault must not be mounted read-write.

            'export --view FORMAT SOURCE DESTINATION' exports what 'vaultfs view FORMAT SOURCE' would show, with the same \
            options. A SOURCE that is a directory is \
            exported into the directory DESTINATION, which is made; a file to the file DESTINATION, or into the directory \
            of that name. Files are readable for nobody but you, and keep their times; links are copied as links.

            Interrupted, it goes on where it was: a file that is not whole has a name that begins with \
            .vaultfs-export-, in the directory that it belongs to. Files that are there already are kept, and never \
            replaced: one that is not of the same source, length and time is an error.

            These formats do not tell whether a file was changed. Files that cannot be decrypted are named on stderr, the \
            others are exported, and the exit code is \(FailureCode.incomplete.rawValue).
            """)

    @Option(name: .customLong("view"), help: ArgumentHelp("cbc-chunks, cbc, openssl or hls.", valueName: "format"))
    var formatName: ViewFormatName?

    @Argument(help: ArgumentHelp("A vault, and what in it; of a view a file or a directory.", valueName: "source"))
    var source: VaultPathArgument

    @Argument(help: "Where its plaintext goes.")
    var destination: PathArgument

    @OptionGroup
    var transfer: TransferArguments

    @Flag(
        help:
            "Also set-user-ID and set-group-ID bits, file capabilities and devices, which a vault does not authenticate."
    )
    var preserveSpecial = false

    @Flag(help: "Write what verifies of damaged files, and list what does not.")
    var damaged = false

    @OptionGroup(title: "Format options")
    var options: ViewOptions

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions

    func validate() throws {
        if let formatName {
            try options.validate(for: formatName)
            let forVaults = [
                transfer.overwrite ? "--overwrite" : nil, transfer.verify ? "--verify" : nil,
                damaged ? "--damaged" : nil, preserveSpecial ? "--preserve-special" : nil,
                secret.keyfile != nil ? "--keyfile" : nil,
                secret.provider != nil ? "--provider" : nil,
                secret.recoveryKey ? "--recovery-key" : nil,
            ].compactMap { $0 }
            if let option = forVaults.first { throw ValidationError("\(option) is for vaults, not for views") }
        } else {
            if let option = options.given.first {
                throw ValidationError("\(option.name) is for views: give --view too")
            }
            if damaged && transfer.verify { throw ValidationError("only one of --damaged, --verify can be given") }
        }
    }

    mutating func run() throws {
        ProcessSetup.protectMemory()
        if let formatName { try runView(formatName) } else { try runVault() }
    }

    private mutating func runView(_ formatName: ViewFormatName) throws {
        let (source, passphrase) = (source.whole, secret.passphrase)
        // `--key` files are named to the key store by absolute paths.
        try options.makeAbsolute()
        let view = ViewArguments(formatName: formatName, options: options)
        try view.check(passphrase)
        let place = try ViewLocation(try MountArguments.resolve(source))
        try view.check(place)
        try view.check(try place.manifest())
        let target = try ExportTarget(destination.path, of: place)
        let secret = try view.readSecret(passphrase)
        let secrets = try ViewSecrets(view.origin, secret: secret.count > 0 ? secret : nil, isLockable: false)
        let viewed = try view.source(place, secrets: secrets, keyFile: secret, log: Console.report)
        let report = ExportReport(
            source: source, destination: destination.path, format: formatName,
            isFile: target.name != nil, isJSON: transfer.json,
            survey: { ExportSurvey.size(of: viewed) })
        let interruption = try Interruption { viewed.keys.stop() }
        try withExtendedLifetime(secrets) { try export(viewed, to: target, report, interruption) }
    }

    private func export(
        _ viewed: ViewSource, to target: ExportTarget, _ report: ExportReport, _ interruption: Interruption
    ) throws {
        let observer = ExportObserver(failed: report.add) { totals in
            report.showProgress(totals)
            return interruption.signal == nil
        }
        let exporter = try ViewExporter(source: viewed, observer: observer)
        do throws(ExportError) {
            if let name = target.name {
                try exporter.exportFile(as: name, into: target.directory)
            } else {
                try exporter.exportTree(into: target.directory)
            }
        } catch {
            report.clear()
            if let signal = interruption.signal {
                Console.report("interrupted: the same command goes on where this one was")
                Signals.end(by: signal)
            }
            throw failure(error)
        }
        try report.finish(exporter.totals)
    }

    private func failure(_ error: ExportError) -> CommandFailure {
        switch error {
        case .stopped: CommandFailure(.failure, "interrupted")
        case .insideSource:
            ExportTarget.insideSource(destination.path)
        case .unusable(let path, let error):
            CommandFailure(
                .failure,
                "\(path.isEmpty ? destination.path.shown : FilePath(bytes: path).shown): \(ExportTarget.text(error)): "
                    + "the same command goes on where this one was")
        }
    }
}
