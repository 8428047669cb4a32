internal import ArgumentParser
internal import ViewFormats

/// `vaultfs export VAULT[:PATH] DESTINATION` and `vaultfs export --view FORMAT SOURCE DESTINATION`
struct ExportCommand: ParsableCommand, VaultOpener {
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
            exit code is \(FailureCode.damageFound.rawValue). The vault must not be mounted read-write.

            'export --view FORMAT SOURCE DESTINATION' exports the files that 'vaultfs view FORMAT SOURCE' would show, with \
            the same options. Only you can read the copies. They keep their times. Links are copied as links. These \
            formats do not show whether a file was changed.

            After an interruption, the same command goes on, also inside a large file. An unfinished file has a name that \
            begins with .vaultfs-transfer-, in the directory that the file belongs to. A file that is there already is \
            kept. It is an error if it is not the same, unless --overwrite is given. A file that cannot be decrypted is \
            named on stderr. The others are exported, and the exit code is \(FailureCode.incomplete.rawValue).
            """)

    @Option(name: .customLong("view"), help: ArgumentHelp("cbc-chunks, cbc, openssl or hls.", valueName: "format"))
    var formatName: ViewFormatName?

    @Argument(help: ArgumentHelp("A vault and a path in it, or the file or directory of a view.", valueName: "source"))
    var source: VaultPathArgument

    @Argument(help: "The file or directory that the plaintext goes to.")
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
    var passphrase: PassphraseOptions

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions

    func validate() throws {
        try validateSecret()
        if let formatName {
            try options.validate(for: formatName)
            let forVaults = [
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
}
