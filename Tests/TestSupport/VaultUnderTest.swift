import Foundation

/// A vault made and mounted through the binary, as a user would. Whatever happens, releasing it leaves no mount, no
/// daemon and no file behind.
package final class VaultUnderTest {
    package let account: Account
    package let store: BackingStore
    /// The vault's directory, its mountpoint, a plain directory on the same store, the file with the passphrase.
    package let vault: String
    package let mountpoint: String
    package let plain: String
    package let passfile: String
    private let base: String
    private let runtime: TemporaryDirectory
    /// The daemon's process id, while mounted.
    package private(set) var daemon: Int32?

    package static let passphrase = "correct horse"

    /// Makes a vault (scrypt logN 10, so that tests are quick). `initialise: false` leaves an empty directory.
    package init(
        _ account: Account = .current, on kind: BackingStore.Kind = .tmpfs, initialise: Bool = true,
        arguments: [String] = []
    ) throws {
        self.account = account
        store = try BackingStore(kind)
        runtime = try TemporaryDirectory()
        base = store.path
        (vault, mountpoint) = ("\(base)/vault", "\(base)/mount")
        (plain, passfile) = ("\(base)/plain", "\(base)/passfile")
        try Command(["mkdir", vault, mountpoint, plain]).run().succeeded()
        try Data(Self.passphrase.utf8).write(to: URL(fileURLWithPath: passfile))
        chmod(passfile, 0o600)
        try account.own(base)
        try account.own(runtime.path)
        chmod(runtime.path, 0o700)
        if initialise {
            try vaultfs(
                ["init", vault, "--passfile", passfile, "--scrypt-logn", "10", "--no-recovery-key"] + arguments
            ).succeeded()
        }
    }

    deinit {
        if let daemon { kill(daemon, SIGKILL) }
        _ = try? account.run(["fusermount3", "-uz", mountpoint], timeout: .seconds(10))
    }

    /// Runs the binary.
    package func vaultfs(_ arguments: [String], input: String? = nil, timeout: Duration = .seconds(30)) throws
        -> CommandResult
    {
        try account.run(
            [account.binary] + arguments, environment: environment, input: input, timeout: timeout)
    }

    /// The environment of every command of this vault: a run-time directory of its own.
    package var environment: [String: String] { ["XDG_RUNTIME_DIR": runtime.path] }

    /// `vaultfs mount` with more arguments, under a limit of open files if given. Returns the command's result.
    /// - Parameter launcher: what runs the command.
    package func tryMount(
        _ arguments: [String] = [], openFiles: Int? = nil, launcher: [String] = []
    ) throws -> CommandResult {
        var command = launcher + [account.binary, "mount", vault, mountpoint, "--passfile", passfile] + arguments
        if let openFiles { command = ["sh", "-c", "ulimit -n \(openFiles); exec \"$@\"", "sh"] + command }
        let result = try account.run(command, environment: environment, timeout: .seconds(30))
        if result.exitCode == 0 {
            Products.countMount()
            daemon = findDaemon()
        }
        return result
    }

    /// Mounts; throws where the command fails, or comes back before the mount is there.
    package func mount(_ arguments: [String] = [], openFiles: Int? = nil, launcher: [String] = []) throws {
        try tryMount(arguments, openFiles: openFiles, launcher: launcher).succeeded()
        guard try isMounted() else { throw TestFailure("mount returned, and \(mountpoint) is no mount") }
        guard daemon != nil else { throw TestFailure("mounted, and no daemon to be found") }
    }

    /// `vaultfs unmount`, then waits for the daemon to be gone.
    package func unmount() throws {
        do {
            try vaultfs(["unmount", mountpoint]).succeeded()
            try awaitDaemonsEnd()
        } catch { throw TestFailure("\(error)\nthe daemon's threads:\n\(threads())") }
    }

    /// Where the daemon's threads are in the kernel, for a failure to show.
    private func threads() -> String {
        let script = "for t in /proc/\(daemon ?? 0)/task/*; do cat $t/comm $t/wchan; echo; cat $t/stack; done"
        return (try? Command(["sh", "-c", script]).run())?.output ?? ""
    }

    /// Unmounts and mounts again.
    package func remount(_ arguments: [String] = []) throws {
        try unmount()
        try mount(arguments)
    }

    /// SIGKILL to the daemon; detaches the dead mount.
    package func killDaemon() throws {
        guard let daemon else { throw TestFailure("no daemon to kill") }
        kill(daemon, SIGKILL)
        try awaitDaemonsEnd()
        try account.run(["fusermount3", "-uz", mountpoint]).succeeded()
    }

    /// Throws where the daemon is still there after `timeout`.
    package func awaitDaemonsEnd(timeout: Duration = .seconds(20)) throws {
        guard let daemon else { return }
        try poll("the daemon's end", timeout: timeout) { kill(daemon, 0) != 0 || Self.isZombie(daemon) }
        self.daemon = nil
    }

    package func isMounted() throws -> Bool {
        try account.run(["cat", "/proc/self/mounts"]).output.contains(" \(mountpoint) fuse.vaultfs ")
    }

    /// The independent reader's report on the vault; by root where root runs the tests, since a file in a vault may be
    /// closed to its own owner.
    package func read(_ arguments: [String] = []) throws -> CommandResult {
        let reader = "\(Products.tests)/Reader/vault_reader.py"
        return try Command([Products.python, reader, vault, "--passfile", passfile] + arguments).run()
    }

    /// A field of /proc/PID/status of the daemon in KiB, such as `VmRSS`.
    package func memory(_ field: String) throws -> Int {
        guard let daemon else { throw TestFailure("no daemon") }
        let status = try String(contentsOfFile: "/proc/\(daemon)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("\(field):") }
        return line.flatMap { Int($0.split(separator: " ").dropLast().last ?? "") } ?? 0
    }

    /// How many descriptors the daemon has open.
    package func descriptors() throws -> Int {
        guard let daemon else { throw TestFailure("no daemon") }
        return try Command(["ls", "/proc/\(daemon)/fd"]).run().succeeded().output.split(separator: "\n").count
    }

    /// The process whose command line names this mountpoint: the newest, since `mount` starts the daemon.
    private func findDaemon() -> pid_t? {
        let processes = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        return processes.compactMap { pid_t($0) }.sorted(by: >).first { pid in
            guard let line = try? Data(contentsOf: URL(fileURLWithPath: "/proc/\(pid)/cmdline")) else { return false }
            let words = line.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
            return words.contains(mountpoint) && words.first.map { $0.hasSuffix("vaultfs") } == true
                && !Self.isZombie(pid)
        }
    }

    private static func isZombie(_ pid: pid_t) -> Bool {
        guard let stat = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8) else { return true }
        return stat.split(separator: ")").last?.hasPrefix(" Z") ?? true
    }
}

/// Asks `condition` every 5 ms until it holds; throws after `timeout`.
package func poll(_ what: String, timeout: Duration = .seconds(10), _ condition: () throws -> Bool) throws {
    let deadline = ContinuousClock.now + timeout
    while try !condition() {
        guard ContinuousClock.now < deadline else { throw TestFailure("waited \(timeout) for \(what)") }
        usleep(5000)
    }
}
