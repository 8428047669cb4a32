internal import ArgumentParser
internal import BackingStore
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import ViewExport
internal import ViewFileSystem
internal import ViewFormats

/// `vaultfs export --view FORMAT SOURCE DESTINATION`
struct ExportCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "export", abstract: "Decrypt other programs' AES-CBC files to real files, without mounting.",
        discussion: """
            Exports what 'vaultfs view FORMAT SOURCE' would show, with the same options. A SOURCE that is a directory is \
            exported into the directory DESTINATION, which is made; a file to the file DESTINATION, or into the directory \
            of that name. Files are readable for nobody but you, and keep their times; links are copied as links.

            Interrupted, the same command goes on where it was: a file that is not whole has a name that begins with \
            .vaultfs-export-, in the directory that it belongs to. Files that are there already are kept, and never \
            replaced: one that is not of the same source, length and time is an error.

            These formats do not tell whether a file was changed. Files that cannot be decrypted are named on stderr, the \
            others are exported, and the exit code is \(FailureCode.incomplete.rawValue).
            """)

    @Option(name: .customLong("view"), help: ArgumentHelp("cbc-chunks, cbc, openssl or hls.", valueName: "format"))
    var formatName: ViewFormatName

    @Argument(help: "A file or a directory.")
    var source: PathArgument

    @Argument(help: "Where its plaintext goes.")
    var destination: PathArgument

    @Flag(help: "Print JSON at the end.")
    var json = false

    @OptionGroup(title: "Format options")
    var options: ViewOptions

    @OptionGroup(title: "Passphrase options")
    var passphrase: PassphraseOptions

    private var view: ViewArguments { ViewArguments(formatName: formatName, options: options) }

    func validate() throws {
        try view.validate()
    }

    mutating func run() throws {
        ProcessSetup.protectMemory()
        // `--key` files are named to the key store by absolute paths.
        try options.makeAbsolute()
        try view.check(passphrase)
        let place = try ViewPlace(try MountArguments.resolve(source.path))
        try view.check(place)
        try view.check(try place.manifest())
        let target = try ExportTarget(destination.path, of: place)
        let secret = try view.readSecret(passphrase)
        let secrets = try ViewSecrets(view.origin, secret: secret.count > 0 ? secret : nil, isLockable: false)
        let viewed = try view.source(place, secrets: secrets, keyFile: secret, log: Console.report)
        let report = ExportReport(
            source: source.path, destination: destination.path, format: formatName,
            isFile: target.name != nil, isJSON: json,
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
