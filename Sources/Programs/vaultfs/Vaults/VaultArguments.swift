internal import ArgumentParser
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// The common arguments of commands that open a vault themselves.
struct VaultArguments: ParsableArguments {
    @Argument(help: "The vault directory, or its label in 'vaultfs list'.", completion: Completions.vaults)
    var vault: PathArgument

    @Flag(help: "Print JSON.")
    var json = false

    @OptionGroup(title: "Secret options")
    var secret: VaultSecretOptions
}

/// `VAULT[:PATH]`: a vault, or a path in it. A vault's own path may contain colons, so the longest part of the argument
/// that names a vault is its path.
extension PathArgument {
    /// Opens the vault, and returns the path in it.
    /// - Throws: if no part names a vault, the error of `VaultDirectory.open` for the part before the last colon.
    func openVault() throws -> (vault: VaultDirectory, path: [[UInt8]]) {
        let bytes = path.bytes
        func directory(before end: Int) throws -> VaultDirectory {
            try VaultDirectory.open(FilePath(bytes: Array(bytes[..<end])))
        }
        let colons = bytes.indices.reversed().filter { $0 > 0 && bytes[$0] == UInt8(ascii: ":") }
        for end in [bytes.count] + colons {
            guard GivenVault.isOne(FilePath(bytes: Array(bytes[..<end]))) else { continue }
            return (try directory(before: end), try components(bytes.dropFirst(end + 1)))
        }
        try checkNotBelowVault()
        do { return (try directory(before: colons.first ?? bytes.count), []) } catch VaultError.notAVault(let path) {
            return (try GivenVault.open(path), [])
        }
    }

    /// Refuses a path below a vault, because a path in it must follow a colon.
    /// - Throws: code `usage`.
    private func checkNotBelowVault() throws(CommandFailure) {
        var above = path
        while above.removeLastComponent(), !above.isEmpty {
            guard GivenVault.isOne(above) else { continue }
            let names = FilePath(root: nil, path.components.dropFirst(above.components.count))
            throw CommandFailure(
                .usage,
                "\(path.shown) is below the vault \(above.shown): a path in it is written \(above.shown):\(names.shown)"
            )
        }
    }

    private func components(_ path: ArraySlice<UInt8>) throws -> [[UInt8]] {
        let names = path.split(separator: UInt8(ascii: "/")).map { Array($0) }.filter { $0 != Array(".".utf8) }
        guard !names.contains(Array("..".utf8)) else {
            throw CommandFailure(.usage, "'..' in a path inside a vault: \(FilePath(bytes: Array(path)).shown)")
        }
        return names
    }
}
