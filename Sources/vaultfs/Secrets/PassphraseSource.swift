internal import SystemPackage

/// Where a passphrase or recovery key is read from, other than the terminal.
enum PassphraseSource {
    case file(FilePath)
    /// Run with /bin/sh; `option` is what the command was given with.
    case command([UInt8], option: String)
    case descriptor(Int32)
    /// Of the kernel's keyrings.
    case key([UInt8])
    /// Of systemd.
    case credential([UInt8])

    func read() throws(CommandFailure) -> WipedBytes {
        switch self {
        case .file(let path):
            return try SecretReader.read(path: path, limit: SecretReader.textLimit)
        case .command(let command, let option):
            return try SecretReader.run(command: command, option: option, limit: SecretReader.textLimit)
        case .descriptor(let number):
            return try SecretReader.read(
                descriptor: number, name: "file descriptor \(number)", limit: SecretReader.textLimit)
        case .key(let description): return try SecretReader.read(key: description)
        case .credential(let name): return try SecretReader.read(credential: name)
        }
    }
}
