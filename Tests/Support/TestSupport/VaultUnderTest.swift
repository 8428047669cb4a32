import Foundation

/// A vault made and mounted through the binary.
package final class VaultUnderTest: MountUnderTest {
    /// The vault's directory, the file with the passphrase.
    package let vault: String
    package let passfile: String

    package static let passphrase = "correct horse"

    /// Makes a vault (scrypt logN 10, to be quick). `initialise: false` leaves an empty directory.
    package init(
        _ account: Account = .current, on kind: BackingStore.Kind = .tmpfs, initialise: Bool = true,
        arguments: [String] = []
    ) throws {
        let store = try BackingStore(kind)
        (vault, passfile) = ("\(store.path)/vault", "\(store.path)/passfile")
        try Data(Self.passphrase.utf8).write(to: URL(fileURLWithPath: passfile))
        chmod(passfile, 0o600)
        try super.init(account, on: store, directories: ["vault"])
        if initialise {
            try vaultfs(
                ["init", vault, "--passfile", passfile, "--scrypt-logn", "10", "--no-recovery-key"] + arguments
            ).succeeded()
        }
    }

    /// Makes a vault of the current account with the contents of `archive`, because this is quicker than making and
    /// filling it again.
    package convenience init(from archive: [UInt8]) throws {
        try self.init(initialise: false)
        let file = "\(store.path)/archive"
        try Data(archive).write(to: URL(fileURLWithPath: file))
        try Command(["tar", "--xattrs", "--xattrs-include=*", "-C", vault, "-xpf", file]).run().succeeded()
        unlink(file)
    }

    /// Returns the unmounted vault's directory as a tar archive.
    package func archive() throws -> [UInt8] {
        let file = "\(store.path)/archive"
        defer { unlink(file) }
        try Command(["tar", "--xattrs", "--xattrs-include=*", "-C", vault, "-cf", file, "."]).run().succeeded()
        return [UInt8](try Data(contentsOf: URL(fileURLWithPath: file)))
    }

    /// Runs `vaultfs mount` with more arguments, under a limit of open files if given. Returns the command's result.
    /// - Parameters:
    ///   - opening: the options to open the vault, if not with the passphrase.
    ///   - launcher: the program to run the command.
    package func tryMount(
        _ arguments: [String] = [], opening: [String]? = nil, openFiles: Int? = nil, launcher: [String] = []
    ) throws -> CommandResult {
        let command = [account.binary, "mount", vault, mountpoint] + (opening ?? ["--passfile", passfile])
        return try mounting(launcher + command + arguments, openFiles: openFiles)
    }

    /// Mounts. Throws if the command fails, or returns before the mount exists.
    package func mount(_ arguments: [String] = [], openFiles: Int? = nil, launcher: [String] = []) throws {
        try tryMount(arguments, openFiles: openFiles, launcher: launcher).succeeded()
        try checkMount()
    }

    /// Unmounts and mounts again.
    package func remount(_ arguments: [String] = []) throws {
        try unmount()
        try mount(arguments)
    }

    /// Returns the independent reader's report on the vault. If root runs the tests, root runs the reader too, because
    /// a file in a vault may deny access to its own owner.
    package func read(_ arguments: [String] = []) throws -> CommandResult {
        let options = ["--digests", "--no-lock", "--passfile", passfile]
        return try Command([Products.python, Products.reader, vault] + options + arguments).run()
    }
}
