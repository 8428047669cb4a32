internal import SystemPackage

/// Where a passphrase or recovery key is read from, other than the terminal.
enum PassphraseSource {
    case file(FilePath)
    /// Run with /bin/sh; `option` is what the command was given with.
    case command([UInt8], option: String)
    case descriptor(Int32)

    func read() throws(CommandFailure) -> WipedBytes {
        switch self {
        case .file(let path):
            return try SecretReader.read(path: path, limit: SecretReader.textLimit)
        case .command(let command, let option):
            return try SecretReader.run(command: command, option: option)
        case .descriptor(let number):
            return try SecretReader.read(
                descriptor: number, name: "file descriptor \(number)", limit: SecretReader.textLimit)
        }
    }
}
