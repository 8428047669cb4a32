internal import CLinux
import Foundation
import Synchronization

/// A started program, leader of its own process group. A separate thread waits for it, so its end is an event.
package final class RunningProcess: @unchecked Sendable {
    // `ended` orders the write of `exitCode` before every read. Everything else is set in init and never changes.
    package let pid: Int32
    private let ended = DispatchSemaphore(value: 0)
    private let exitCode = Mutex<Int32?>(nil)
    private let outputFile: String
    private let errorFile: String

    init(_ command: Command) throws {
        let base = "\(NSTemporaryDirectory())/vaultfs-run-\(UUID().uuidString)"
        outputFile = "\(base).out"
        errorFile = "\(base).err"
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        let inputFile = "\(base).in"
        if let input = command.input { try Data(input.utf8).write(to: URL(fileURLWithPath: inputFile)) }
        posix_spawn_file_actions_addopen(&actions, 0, command.input == nil ? "/dev/null" : inputFile, O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, 1, outputFile, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
        posix_spawn_file_actions_addopen(&actions, 2, errorFile, O_WRONLY | O_CREAT | O_TRUNC, 0o644)
        // The program may run for a long time, so it must not inherit this process's descriptors, such as another
        // test's file on a mount.
        linux_spawn_close_from(&actions, STDERR_FILENO + 1)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // A thread of Dispatch blocks signals. The program must not inherit this, because it could not be terminated.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETPGROUP) | Int16(POSIX_SPAWN_SETSIGMASK))
        // Keep the vaults of tests out of the list of whoever runs them.
        let own = ProcessInfo.processInfo.environment.merging([
            "XDG_CONFIG_HOME": "/dev/null", "PYTHONPATH": Products.program("modules"),
        ]) { $1 }
        let environment = own.merging(command.environment) { $1 }
        pid = try Self.spawn(
            command.arguments, environment.map { "\($0)=\($1)" }, actions: &actions, attributes: &attributes)
        if command.input != nil { unlink(inputFile) }
        Thread.detachNewThread { [self] in reap() }
    }

    deinit {
        unlink(outputFile)
        unlink(errorFile)
    }

    /// The output so far.
    package var output: String { Self.text(outputFile) }
    package var errors: String { Self.text(errorFile) }

    /// Returns the exit code (128 + signal), or nil if the program still runs after `timeout`.
    package func wait(timeout: Duration) -> Int32? {
        if let code = exitCode.withLock({ $0 }) { return code }
        let seconds = Double(timeout.components.seconds) + Double(timeout.components.attoseconds) / 1e18
        guard ended.wait(timeout: .now() + seconds) == .success else { return nil }
        ended.signal()
        return exitCode.withLock { $0 }
    }

    /// Signals the whole process group (kill(2)).
    package func kill(_ signal: Int32) {
        Glibc.kill(-pid, signal)
    }

    private func reap() {
        var status: Int32 = 0
        while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        let code = status & 0x7f == 0 ? (status >> 8) & 0xff : 128 + (status & 0x7f)
        exitCode.withLock { $0 = code }
        ended.signal()
    }

    private static func text(_ file: String) -> String {
        String(decoding: (try? Data(contentsOf: URL(fileURLWithPath: file))) ?? Data(), as: UTF8.self)
    }

    private static func spawn(
        _ arguments: [String], _ environment: [String], actions: inout posix_spawn_file_actions_t,
        attributes: inout posix_spawnattr_t
    ) throws -> pid_t {
        var argv = arguments.map { strdup($0) } + [nil]
        var envp = environment.map { strdup($0) } + [nil]
        defer { for string in argv + envp { free(string) } }
        var pid: pid_t = 0
        let failure = posix_spawnp(&pid, arguments[0], &actions, &attributes, &argv, &envp)
        guard failure == 0 else { throw TestFailure("cannot start \(arguments[0]): errno \(failure)") }
        return pid
    }
}
