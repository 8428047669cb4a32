internal import BackingStore
internal import Glibc
internal import SystemPackage
internal import VaultStore

/// posix_spawn(3) and waitpid(2).
enum ChildProcess {
    /// How a child ended.
    enum Outcome: Equatable, CustomStringConvertible {
        case exited(Int32)
        case killed(signal: Int32)

        var description: String {
            switch self {
            case .exited(let code): "failed with exit code \(code)"
            case .killed(let signal): "was ended by signal \(signal)"
            }
        }
    }

    /// POSIX_SPAWN_SETSID of <spawn.h>, which Swift's Glibc does not show.
    private static let newSession: Int16 = 0x80

    /// Starts a program with this process's environment and default signals.
    /// - Parameters:
    ///   - arguments: all of them, the name first; bytes without NUL.
    ///   - descriptors: (ours, the number it has there); all others are passed on unless close-on-exec.
    static func spawn(
        path: String, arguments: [[UInt8]], descriptors: [(own: Int32, target: Int32)], isSessionLeader: Bool = false
    ) throws(Errno) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        var attributes = posix_spawnattr_t()
        posix_spawn_file_actions_init(&actions)
        posix_spawnattr_init(&attributes)
        defer {
            posix_spawn_file_actions_destroy(&actions)
            posix_spawnattr_destroy(&attributes)
        }
        for (own, target) in descriptors { posix_spawn_file_actions_adddup2(&actions, own, target) }
        var defaults = sigset_t()
        sigemptyset(&defaults)
        sigaddset(&defaults, SIGPIPE)
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        var mask = sigset_t()
        sigemptyset(&mask)
        posix_spawnattr_setsigmask(&attributes, &mask)
        let flags = Int16(POSIX_SPAWN_SETSIGDEF) | Int16(POSIX_SPAWN_SETSIGMASK)
        posix_spawnattr_setflags(&attributes, flags | (isSessionLeader ? newSession : 0))

        var pointers = arguments.map { bytes in
            (bytes + [0]).withUnsafeBufferPointer { buffer in
                buffer.withMemoryRebound(to: CChar.self) { $0.baseAddress.flatMap { strdup($0) } }
            }
        }
        defer { for pointer in pointers { free(pointer) } }
        pointers.append(nil)
        var child = pid_t()
        let result = posix_spawn(&child, path, &actions, &attributes, pointers, environ)
        guard result == 0 else { throw Errno(rawValue: result) }
        return child
    }

    /// waitpid(2) for one child.
    static func wait(for child: pid_t) -> Outcome {
        var status: Int32 = 0
        while waitpid(child, &status, 0) == -1 {
            guard errno == EINTR else { return .exited(-1) }
        }
        // WIFSIGNALED, WEXITSTATUS of <sys/wait.h>, which are macros.
        let signal = status & 0x7F
        return signal == 0 ? .exited((status >> 8) & 0xFF) : .killed(signal: signal)
    }
}
