import Foundation

/// A mount made through the binary, as by a user. Releasing it removes the mount, the daemon and all files, whatever
/// happened.
package class MountUnderTest {
    package let account: Account
    package let store: BackingStore
    /// The mountpoint, a plain directory on the same store.
    package let mountpoint: String
    package let plain: String
    private let runtime: TemporaryDirectory
    /// The daemon's process id, while mounted.
    package private(set) var daemon: Int32?

    /// - Parameter names: directories to make on the store, beside the mountpoint and the plain directory.
    init(_ account: Account, on store: BackingStore, directories names: [String]) throws {
        self.account = account
        self.store = store
        runtime = try TemporaryDirectory()
        let base = store.path
        (mountpoint, plain) = ("\(base)/mount", "\(base)/plain")
        try Command(["mkdir", mountpoint, plain] + names.map { "\(base)/\($0)" }).run().succeeded()
        try account.own(base)
        try account.own(runtime.path)
        chmod(runtime.path, 0o700)
    }

    deinit {
        if let daemon { kill(daemon, SIGKILL) }
        _ = try? account.run(["fusermount3", "-uz", mountpoint], timeout: .seconds(10))
    }

    /// Runs the binary, and counts a mount.
    package func vaultfs(_ arguments: [String], input: String? = nil, timeout: Duration = .seconds(30)) throws
        -> CommandResult
    {
        let result = try account.run(
            [account.binary] + arguments, environment: environment, input: input, timeout: timeout)
        if arguments.first == "mount", result.exitCode == 0 { Products.countMount() }
        return result
    }

    /// The environment of every command of this mount, with its own run-time directory and list of vaults.
    package var environment: [String: String] { ["XDG_RUNTIME_DIR": runtime.path, "XDG_CONFIG_HOME": runtime.path] }

    /// Runs a mounting command, with a limit of open files if given, and remembers the daemon.
    package func mounting(_ command: [String], openFiles: Int? = nil) throws -> CommandResult {
        var command = command
        if let openFiles { command = ["sh", "-c", "ulimit -n \(openFiles); exec \"$@\"", "sh"] + command }
        let result = try account.run(command, environment: environment, timeout: .seconds(30))
        if result.exitCode == 0 { noteMount() }
        return result
    }

    /// Counts a new mount, and finds its daemon.
    func noteMount() {
        Products.countMount()
        daemon = findDaemon()
    }

    /// Throws if a successful command has left no mount.
    func checkMount() throws {
        guard try isMounted() else { throw TestFailure("mount returned, and \(mountpoint) is no mount") }
        guard daemon != nil else { throw TestFailure("mounted, and no daemon to be found") }
    }

    /// Runs `vaultfs status --json`. Throws unless the exit code agrees with the problems.
    package func status() throws -> [String: Any] {
        let result = try vaultfs(["status", mountpoint, "--json"])
        let object = try result.fields()
        let hasProblems = (object["problems"] as? [String])?.isEmpty == false
        guard result.exitCode == (hasProblems ? 16 : 0) else {
            throw TestFailure("problems: \(hasProblems): \(result)")
        }
        return object
    }

    /// Returns a counter of `status`.
    package func statistic(_ name: String) throws -> Int {
        guard let value = (try status()["statistics"] as? [String: Any])?[name] as? Int else {
            throw TestFailure("no counter \(name)")
        }
        return value
    }

    /// Runs `vaultfs unmount`, then waits for the daemon's end.
    package func unmount() throws {
        do {
            try vaultfs(["unmount", mountpoint]).succeeded()
            try awaitDaemonsEnd()
        } catch { throw TestFailure("\(error)\nthe daemon's threads:\n\(threads())") }
    }

    /// Returns the places in the kernel where the daemon's threads wait, for a failure's message.
    private func threads() -> String {
        let script = "for t in /proc/\(daemon ?? 0)/task/*; do cat $t/comm $t/wchan; echo; cat $t/stack; done"
        return (try? Command(["sh", "-c", script]).run())?.output ?? ""
    }

    /// Sends SIGKILL to the daemon and detaches the dead mount.
    package func killDaemon() throws {
        guard let daemon else { throw TestFailure("no daemon to kill") }
        kill(daemon, SIGKILL)
        try awaitDaemonsEnd()
        try account.run(["fusermount3", "-uz", mountpoint]).succeeded()
    }

    /// Throws if the daemon is still running after `timeout`.
    package func awaitDaemonsEnd(timeout: Duration = .seconds(20)) throws {
        guard let daemon else { return }
        try poll("the daemon's end", timeout: timeout) { Self.hasEnded(daemon) }
        self.daemon = nil
    }

    package func isMounted() throws -> Bool {
        try account.run(["cat", "/proc/self/mounts"]).output.contains(" \(mountpoint) fuse.vaultfs ")
    }

    /// Returns a field of /proc/PID/status of the daemon in KiB, such as `VmRSS`.
    package func memory(_ field: String) throws -> Int {
        guard let daemon else { throw TestFailure("no daemon") }
        let status = try String(contentsOfFile: "/proc/\(daemon)/status", encoding: .utf8)
        let line = status.split(separator: "\n").first { $0.hasPrefix("\(field):") }
        return line.flatMap { Int($0.split(separator: " ").dropLast().last ?? "") } ?? 0
    }

    /// Returns the number of the daemon's open descriptors.
    package func descriptors() throws -> Int {
        guard let daemon else { throw TestFailure("no daemon") }
        return try Command(["ls", "/proc/\(daemon)/fd"]).run().succeeded().output.split(separator: "\n").count
    }

    /// Finds the newest process whose command line names this mountpoint, because `mount` starts the daemon.
    private func findDaemon() -> pid_t? {
        let processes = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        let candidates = processes.compactMap { pid_t($0) }.filter { pid in
            guard let line = try? Data(contentsOf: URL(fileURLWithPath: "/proc/\(pid)/cmdline")) else { return false }
            let words = line.split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
            return words.contains(mountpoint) && words.first.map { $0.hasSuffix("vaultfs") } == true
                && !Self.isZombie(pid)
        }
        return candidates.max { Self.startTime($0) < Self.startTime($1) }
    }

    /// Returns the fields of proc_pid_stat(5) after the name, from the state on. Empty if there is no such process.
    private static func status(_ pid: pid_t) -> [Substring] {
        let text = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
        return text?.split(separator: ")").last?.split(separator: " ") ?? []
    }

    /// Returns the start time in clock ticks, because process numbers wrap.
    private static func startTime(_ pid: pid_t) -> Int { status(pid).dropFirst(19).first.flatMap { Int($0) } ?? 0 }

    /// Returns true if a process has ended, even if its parent has not waited for it yet.
    package static func hasEnded(_ pid: Int32) -> Bool { kill(pid, 0) != 0 || isZombie(pid) }

    private static func isZombie(_ pid: Int32) -> Bool {
        guard ["Z", nil].contains(status(pid).first) else { return false }
        // The first thread may have ended before the others, which keep the process's files open until they end.
        return (try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/task").count > 1) != true
    }
}

/// Waits until the kernel's clock for file times has advanced.
package func awaitTick() {
    func now(_ clock: clockid_t) -> Int {
        var time = timespec()
        clock_gettime(clock, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }
    // The coarse clock can be several ticks late on a virtual machine.
    let begin = now(CLOCK_REALTIME)
    while now(CLOCK_REALTIME_COARSE) <= begin { usleep(1000) }
}

/// Repeats `condition` every 5 ms until it is true. Throws after `timeout`.
package func poll(
    _ what: @autoclosure () -> String, timeout: Duration = .seconds(10), _ condition: () throws -> Bool
) throws {
    let deadline = ContinuousClock.now + timeout
    while try !condition() {
        guard ContinuousClock.now < deadline else { throw TestFailure("waited \(timeout) for \(what())") }
        usleep(5000)
    }
}
