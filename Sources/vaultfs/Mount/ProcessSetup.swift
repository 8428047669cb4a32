internal import CLinux
internal import Glibc
internal import VaultCrypto

/// What a process that holds keys does first.
enum ProcessSetup {
    /// What ends a program that is at fault (signal(7)).
    private static let crashSignals = [SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV]

    /// No core dump, no debugger, and no reading of its memory by others of the same user; room for keys where they are
    /// not swapped out. Before the first secret is read. `MemoryProtection` tells what came of it.
    static func protectMemory() {
        // Swift's own handlers tell on stderr what is at the places that the registers hold: it may be a key, and go to a log.
        for number in crashSignals { signal(number, SIG_DFL) }
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(coreLimit, &none)
        linux_set_not_dumpable()
        raise(lockedMemoryLimit)
        SecretMemory.reserve()
    }

    /// Whether a core dump is limited to nothing (setrlimit(2), RLIMIT_CORE).
    static var isWithoutCoreDumps: Bool {
        var limit = rlimit()
        return getrlimit(coreLimit, &limit) == 0 && limit.rlim_cur == 0
    }

    /// Sets the name that ps(1) and `/proc/PID/comm` show: started by way of /proc/self/exe it would be "exe". Before
    /// `protectMemory`, which gives the file to root.
    static func setName() {
        let fd = open("/proc/self/comm", O_WRONLY | O_CLOEXEC)
        guard fd >= 0 else { return }
        write(fd, "vaultfs", 7)
        close(fd)
    }

    /// Opens what of stdin, stdout and stderr the caller left closed: else a vault's descriptor would take its number and
    /// its fate.
    static func completeStandardDescriptors() {
        // open(2) gives the lowest number that is free.
        for standard in STDIN_FILENO...STDERR_FILENO where fcntl(standard, F_GETFD) == -1 {
            _ = open("/dev/null", O_RDWR)
        }
    }

    /// Raises what an ordinary user may raise: open files, and the size of files (the limit of whoever mounts is not that
    /// of the programs on the mount). Locked memory is raised before, by `protectMemory`.
    static func raiseLimits() {
        raise(openFilesLimit)
        raise(fileSizeLimit)
    }

    private static func raise(_ resource: __rlimit_resource_t) {
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0, limit.rlim_cur < limit.rlim_max else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(resource, &limit)
    }

    /// Closes what the shell left open above `highest`: a daemon is not to keep others' files and pipes open.
    /// Before any thread or library has opened something of its own.
    static func closeInheritedDescriptors(above highest: Int32) {
        guard let listing = opendir("/proc/self/fd") else { return }
        let own = dirfd(listing)
        var inherited: [Int32] = []
        while let entry = readdir(listing) {
            let name = withUnsafePointer(to: &entry.pointee.d_name) { pointer in
                pointer.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
            }
            if let fd = Int32(name), fd > highest, fd != own { inherited.append(fd) }
        }
        closedir(listing)
        for fd in inherited { close(fd) }
    }

    /// Leaves the directory that the daemon was started from, which could not be unmounted otherwise. Before the workers of a
    /// mount start: each takes a copy of the working directory (unshare(2), CLONE_FS).
    static func leaveDirectory() {
        chdir("/")
    }

    /// Leaves the session and the terminal that the daemon was started from.
    static func detach() {
        setsid()
        let null = open("/dev/null", O_RDWR | O_CLOEXEC)
        guard null >= 0 else { return }
        for standard in [STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO] { dup2(null, standard) }
        if null > STDERR_FILENO { close(null) }
    }

    private static let coreLimit = __rlimit_resource_t(RLIMIT_CORE.rawValue)
    private static let openFilesLimit = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    private static let fileSizeLimit = __rlimit_resource_t(RLIMIT_FSIZE.rawValue)
    private static let lockedMemoryLimit = __rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue)
}
