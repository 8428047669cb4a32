internal import ArgumentParser
internal import SystemPackage
internal import VaultFormat

/// Where a passphrase comes from: one of these, or the terminal.
struct PassphraseOptions: ParsableArguments {
    @Option(help: ArgumentHelp("Read the passphrase from a file.", valueName: "file"))
    var passfile: PathArgument?

    @Option(help: ArgumentHelp("Run a command with /bin/sh and take its output as the passphrase.", valueName: "cmd"))
    var extpass: String?

    @Option(
        name: .customLong("passphrase-fd"),
        help: ArgumentHelp("Read the passphrase from a file descriptor.", valueName: "n"))
    var passphraseDescriptor: Int32?

    @Option(
        help: ArgumentHelp(
            "Take the passphrase from the kernel's keyrings: a key of type user, by its description (keyctl(1)).",
            valueName: "description"))
    var keyring: String?

    @Option(
        help: ArgumentHelp(
            "Take the passphrase from a systemd credential: the file of this name in $CREDENTIALS_DIRECTORY.",
            valueName: "name"))
    var credential: String?

    /// The options given.
    var sources: [String] {
        [
            passfile == nil ? nil : "--passfile", extpass == nil ? nil : "--extpass",
            passphraseDescriptor == nil ? nil : "--passphrase-fd", keyring == nil ? nil : "--keyring",
            credential == nil ? nil : "--credential",
        ].compactMap { $0 }
    }

    func validate() throws {
        try Self.checkSingle(sources)
        if let passphraseDescriptor, passphraseDescriptor < 0 {
            throw ValidationError("--passphrase-fd \(passphraseDescriptor) is not a file descriptor")
        }
        if let credential, credential.isEmpty || credential.contains("/") || [".", ".."].contains(credential) {
            throw ValidationError("--credential '\(credential)' is not the name of a credential")
        }
    }

    /// What fstab can only say within `-o`.
    mutating func take(_ list: MountOptionList) throws {
        if let text = list.ours["passfile"] { passfile = PathArgument(argument: text) }
        if let text = list.ours["extpass"] { extpass = text }
        if let text = list.ours["passphrase_fd"] {
            guard let number = Int32(text) else {
                throw CommandFailure(.usage, "mount option passphrase_fd='\(text)' is not a number")
            }
            passphraseDescriptor = number
        }
        if let text = list.ours["keyring"] { keyring = text }
        if let text = list.ours["credential"] { credential = text }
        try validate()
    }

    static func checkSingle(_ sources: [String]) throws {
        guard sources.count <= 1 else {
            throw ValidationError("only one of \(sources.joined(separator: ", ")) can be given")
        }
    }

    /// What the source holds; nil where none was given.
    func read() throws(CommandFailure) -> WipedBytes? {
        try source?.read()
    }

    private var source: PassphraseSource? {
        if let passfile { return .file(passfile.path) }
        if let extpass { return .command(ProcessArguments.bytes(of: extpass), option: "--extpass") }
        if let keyring { return .key(ProcessArguments.bytes(of: keyring)) }
        if let credential { return .credential(ProcessArguments.bytes(of: credential)) }
        return passphraseDescriptor.map { .descriptor($0) }
    }

    /// The passphrase, from the terminal where no source was given.
    func passphrase() throws(CommandFailure) -> SlotSecret {
        let text: WipedBytes
        if let given = try read() { text = given } else { text = try TerminalPrompt.ask("Passphrase: ") }
        return try SecretReader.slotSecret(text) { (bytes) throws(FormatError) in try .passphrase(bytes) }
    }
}
