internal import CLinux
package import Control
internal import Glibc
internal import VaultCrypto

/// Prepares a process that will hold keys.
package enum ProcessSetup {
    /// The signals of a program error (signal(7)).
    private static let crashSignals = [SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV]

    /// Turns off core dumps, debuggers and memory access by other processes of the user, and reserves memory for keys
    /// that is never swapped out. Called before the first secret is read. `MemoryProtection` reports the result.
    package static func protectMemory() {
        // Remove Swift's handlers, which print the memory around registers: it may be a key, and stderr may be a log.
        for number in crashSignals { signal(number, SIG_DFL) }
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(coreLimit, &none)
        linux_set_not_dumpable()
        raise(__RLIMIT_MEMLOCK)
        SecretMemory.reserve()
    }

    /// True if the size of core dumps is limited to 0 (setrlimit(2), RLIMIT_CORE).
    static var isWithoutCoreDumps: Bool {
        var limit = rlimit()
        return getrlimit(coreLimit, &limit) == 0 && limit.rlim_cur == 0
    }

    /// Sets the name in ps(1) and `/proc/PID/comm`, which is "exe" after a start through /proc/self/exe. Called before
    /// `protectMemory`, which makes root the owner of this file.
    static func setName() {
        let fd = open("/proc/self/comm", O_WRONLY | O_CLOEXEC)
        guard fd >= 0 else { return }
        write(fd, "vaultfs", 7)
        close(fd)
    }

    /// Prepares standard descriptors and signals. Must be the first call of a program, and so of the daemon.
    package static func begin() {
        completeStandardDescriptors()
        // Writing to a closed pipe or socket then returns an error for us to handle.
        signal(SIGPIPE, SIG_IGN)
        // So does a file over its limit (setrlimit(2), RLIMIT_FSIZE).
        signal(SIGXFSZ, SIG_IGN)
    }

    /// Opens /dev/null as stdin, stdout or stderr if the caller has closed it. Otherwise a file of the store would get
    /// this number, and output would be written to the file.
    private static func completeStandardDescriptors() {
        // open(2) returns the lowest free number.
        for standard in STDIN_FILENO...STDERR_FILENO where fcntl(standard, F_GETFD) == -1 {
            _ = open("/dev/null", O_RDWR)
        }
    }

    /// Raises the limits of open files and of file sizes to their maximum. Programs on the mount have their own limits.
    package static func raiseLimits() {
        raise(RLIMIT_NOFILE)
        raise(RLIMIT_FSIZE)
    }

    private static func raise(_ limited: __rlimit_resource) {
        let resource = __rlimit_resource_t(limited.rawValue)
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0, limit.rlim_cur < limit.rlim_max else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(resource, &limit)
    }

    /// Leaves the session and its terminal.
    static func detach() {
        setsid()
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        guard null >= 0 else { return }
        for standard in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] { dup2(null, standard) }
        if null > STDERR_FILENO { close(null) }
    }

    private static let coreLimit = __rlimit_resource_t(RLIMIT_CORE.rawValue)
}

extension MemoryProtection {
    package init(cacheIsLocked: Bool) {
        self.init(
            keys: SecretMemory.kind, cacheIsLocked: cacheIsLocked,
            coreDumpsOff: ProcessSetup.isWithoutCoreDumps, notDumpable: linux_is_dumpable() == 0)
    }
}
