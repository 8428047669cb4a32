internal import CLinux
internal import Glibc
internal import VaultCrypto

/// Prepares a process that will hold keys.
enum ProcessSetup {
    /// The signals of a program error (signal(7)).
    private static let crashSignals = [SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV]

    /// Turns off core dumps, debuggers and memory access by other processes of the user, and reserves memory for keys that is
    /// never swapped out. Called before the first secret is read. `MemoryProtection` has the result.
    static func protectMemory() {
        // Swift's handlers print the memory that registers point to. It may be a key, and stderr may be a log.
        for number in crashSignals { signal(number, SIG_DFL) }
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(coreLimit, &none)
        linux_set_not_dumpable()
        raise(lockedMemoryLimit)
        SecretMemory.reserve()
    }

    /// True if the size of core dumps is limited to 0 (setrlimit(2), RLIMIT_CORE).
    static var isWithoutCoreDumps: Bool {
        var limit = rlimit()
        return getrlimit(coreLimit, &limit) == 0 && limit.rlim_cur == 0
    }

    /// Sets the name in ps(1) and `/proc/PID/comm`, which is "exe" after a start by way of /proc/self/exe. Called before
    /// `protectMemory`, which makes root the owner of that file.
    static func setName() {
        let fd = open("/proc/self/comm", O_WRONLY | O_CLOEXEC)
        guard fd >= 0 else { return }
        write(fd, "vaultfs", 7)
        close(fd)
    }

    /// Opens /dev/null as stdin, stdout or stderr if the caller has closed it. Otherwise a vault's descriptor would get that
    /// number, and output would be written to the vault.
    static func completeStandardDescriptors() {
        // open(2) returns the lowest free number.
        for standard in STDIN_FILENO...STDERR_FILENO where fcntl(standard, F_GETFD) == -1 {
            _ = open("/dev/null", O_RDWR)
        }
    }

    /// Raises the limits of open files and of file sizes to their maximum: programs on the mount have limits of their own.
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

    /// Closes inherited descriptors above `highest`: a daemon must not keep others' files and pipes open. Called before any
    /// thread or library has opened a descriptor.
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

    /// Leaves the working directory, so that its file system can be unmounted. Called before the workers of a mount start: each
    /// takes a copy of the working directory (unshare(2), CLONE_FS).
    static func leaveDirectory() {
        chdir("/")
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
    private static let openFilesLimit = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
    private static let fileSizeLimit = __rlimit_resource_t(RLIMIT_FSIZE.rawValue)
    private static let lockedMemoryLimit = __rlimit_resource_t(__RLIMIT_MEMLOCK.rawValue)
}

/// The protection of keys and plaintext in this process's memory. `vaultfs status --json` documents the names of the fields.
struct MemoryProtection: Codable, Equatable, Sendable {
    /// The memory of the block cache and the workers' buffers. Never memfd_secret, because the kernel reads and writes it.
    enum Cache: String, Codable, Sendable {
        case locked = "mlock"
        case unlocked
    }

    /// The weakest kind of memory that a key has been in.
    let keys: SecretMemoryKind
    let cache: Cache
    /// RLIMIT_CORE is 0.
    let coreDumpsOff: Bool
    /// PR_SET_DUMPABLE is 0: no other process of the user can read the memory or attach a debugger.
    let notDumpable: Bool

    /// The protection now.
    init(cacheIsLocked: Bool) {
        self.init(
            keys: SecretMemory.kind, cache: cacheIsLocked ? .locked : .unlocked,
            coreDumpsOff: ProcessSetup.isWithoutCoreDumps, notDumpable: linux_is_dumpable() == 0)
    }

    init(keys: SecretMemoryKind, cache: Cache, coreDumpsOff: Bool, notDumpable: Bool) {
        self.keys = keys
        self.cache = cache
        self.coreDumpsOff = coreDumpsOff
        self.notDumpable = notDumpable
    }

    /// The protections that failed, a phrase for people each.
    var shortcomings: [String] {
        var phrases: [String] = []
        switch keys {
        case .memfdSecret: break
        case .locked: phrases.append("no memfd_secret for keys: locked memory only, which root can read")
        case .unlocked: phrases.append("keys are not locked in memory and may reach swap (raise 'ulimit -l')")
        }
        if cache == .unlocked {
            phrases.append("the block cache is not locked in memory and may reach swap (raise 'ulimit -l')")
        }
        if !coreDumpsOff { phrases.append("core dumps could not be turned off") }
        if !notDumpable { phrases.append("processes of the same user can read the daemon's memory") }
        return phrases
    }
}
