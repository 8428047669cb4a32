import Foundation

/// A source of files encrypted by other programs, and its view, mounted through the binary, with its own lock file.
package final class ViewUnderTest: MountUnderTest {
    /// The encrypted files, the same files before encryption, and keys.
    package let source: String
    package let originals: String
    package let keys: String
    package let passfile: String
    package let lockFile: String
    private var foreground: RunningProcess?

    package static let passphrase = "correct horse"

    package init(_ account: Account = .current) throws {
        let store = try BackingStore(.tmpfs)
        let base = store.path
        (source, originals, keys) = ("\(base)/source", "\(base)/originals", "\(base)/keys")
        (passfile, lockFile) = ("\(base)/passfile", "\(base)/locks/lock")
        try Data(Self.passphrase.utf8).write(to: URL(fileURLWithPath: passfile))
        chmod(passfile, 0o600)
        try super.init(account, on: store, directories: ["source", "originals", "keys", "locks"])
    }

    deinit {
        foreground?.kill(SIGKILL)
    }

    /// Fills the three directories with `view_files.py`.
    package func make(_ kind: String, _ arguments: [String] = []) throws {
        try account.program("views/view_files.py", [kind, store.path, passfile] + arguments).succeeded()
    }

    private func command(_ format: String, _ arguments: [String], _ source: String?) -> [String] {
        [account.binary, "view", format, source ?? self.source, mountpoint, "--lock-file", lockFile] + arguments
    }

    /// Runs `vaultfs view` with more arguments. Returns the command's result.
    /// - Parameters:
    ///   - source: the source, or nil for the directory.
    ///   - launcher: the program to run the command.
    package func tryMount(
        _ format: String, _ arguments: [String] = [], source: String? = nil, launcher: [String] = []
    ) throws -> CommandResult {
        try mounting(launcher + command(format, arguments, source))
    }

    /// Mounts. Throws if the command fails, or returns before the mount exists.
    package func mount(
        _ format: String, _ arguments: [String] = [], source: String? = nil, launcher: [String] = []
    ) throws {
        try tryMount(format, arguments, source: source, launcher: launcher).succeeded()
        try checkMount()
    }

    /// Mounts in the foreground, so `log` is available.
    package func mountInForeground(_ format: String, _ arguments: [String] = []) throws {
        let process = try account.command(
            command(format, arguments + ["-f"], nil), environment: environment
        ).start()
        foreground = process
        try poll("the mount") { [self] in
            if process.wait(timeout: .zero) != nil { throw TestFailure("no mount: \(process.errors)") }
            return try isMounted()
        }
        noteMount()
        try checkMount()
    }

    /// The log of the daemon in the foreground.
    package var log: String { foreground?.errors ?? "" }

    /// Returns the problems listed by `status`.
    package func problems() throws -> [String] { try status()["problems"] as? [String] ?? [] }

    /// Runs a program of `Tests/Support/Programs` with this run-time directory.
    package func program(_ name: String, _ arguments: [String], timeout: Duration = .seconds(60)) throws
        -> CommandResult
    {
        try account.run(
            [Products.python, "\(account.support)/Programs/\(name)"] + arguments, environment: environment,
            timeout: timeout)
    }
}
