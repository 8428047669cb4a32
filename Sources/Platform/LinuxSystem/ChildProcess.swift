internal import CLinux
package import Glibc
internal import SystemPackage

/// Child processes by posix_spawn(3) and waitpid(2). Any thread.
package enum ChildProcess {
    /// The end of a child.
    package enum Outcome: Equatable, CustomStringConvertible {
        case exited(Int32)
        case killed(signal: Int32)

        package var description: String {
            switch self {
            case .exited(let code): "failed with exit code \(code)"
            case .killed(let signal): "was ended by signal \(signal)"
            }
        }
    }

    /// POSIX_SPAWN_SETSID of <spawn.h>, which Swift's Glibc lacks.
    private static let newSession: Int16 = 0x80

    /// Starts a program with the default action for SIGPIPE and all signals unblocked.
    /// - Parameters:
    ///   - arguments: all of them, the name first. Bytes without NUL.
    ///   - environment: `NAME=value`, bytes without NUL. Nil for this process's.
    ///   - descriptors: pairs of our descriptor and its number in the child, which otherwise gets only stdio.
    /// - Throws: the error of fcntl(2) or posix_spawn(3).
    package static func spawn(
        path: String, arguments: [[UInt8]], environment: [[UInt8]]? = nil,
        descriptors: [(own: Int32, target: Int32)], isSessionLeader: Bool = false
    ) throws(StoreError) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&actions)
            posix_spawnattr_destroy(&attributes)
        }
        // The copy of one descriptor must not overwrite another before its turn.
        let free = (descriptors.map(\.target) + [STDERR_FILENO]).reduce(0, max) + 1
        let copies = try descriptors.map { (own, _) throws(StoreError) in
            Descriptor(owning: try retrying { fcntl(own, F_DUPFD_CLOEXEC, free) })
        }
        defer { withExtendedLifetime(copies) {} }
        for (copy, (_, target)) in zip(copies, descriptors) {
            posix_spawn_file_actions_adddup2(&actions, copy.fd, target)
        }
        linux_spawn_close_from(&actions, free)
        var defaults = sigset_t()
        sigemptyset(&defaults)
        sigaddset(&defaults, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        var mask = sigset_t()
        sigemptyset(&mask)
        posix_spawnattr_setsigmask(&attributes, &mask)
        let flags = Int16(POSIX_SPAWN_SETSIGDEF) | Int16(POSIX_SPAWN_SETSIGMASK)
        posix_spawnattr_setflags(&attributes, flags | (isSessionLeader ? newSession : 0))

        var child = pid_t()
        let result = withCStrings(arguments) { words in
            guard let environment else { return posix_spawn(&child, path, &actions, &attributes, words, environ) }
            return withCStrings(environment) { posix_spawn(&child, path, &actions, &attributes, words, $0) }
        }
        guard result == 0 else { throw .system(Errno(rawValue: result)) }
        return child
    }

    /// Calls `body` with C strings, ended by NULL, as required by posix_spawn(3).
    private static func withCStrings(
        _ strings: [[UInt8]], _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Int32
    ) -> Int32 {
        var pointers = strings.map { withCString($0) { strdup($0) } }
        defer { for pointer in pointers { free(pointer) } }
        pointers.append(nil)
        return pointers.withUnsafeMutableBufferPointer { buffer in
            guard let base = buffer.baseAddress else { preconditionFailure("internal error: no arguments") }
            return body(base)
        }
    }

    /// Waits for one child (waitpid(2)).
    package static func wait(for child: pid_t) -> Outcome {
        var status: Int32 = 0
        while waitpid(child, &status, 0) == -1 {
            guard errno == EINTR else { return .exited(-1) }
        }
        // WIFSIGNALED and WEXITSTATUS of <sys/wait.h> are macros.
        let signal = status & 0x7F
        return signal == 0 ? .exited((status >> 8) & 0xFF) : .killed(signal: signal)
    }
}
