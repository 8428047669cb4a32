internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Logging
internal import Synchronization
internal import VaultCrypto
internal import VaultStore

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
        raise(__RLIMIT_MEMLOCK)
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

/// The signals of a daemon: SIGTERM, SIGINT and SIGHUP end it in good order, SIGUSR1 locks, SIGUSR2 unlocks. One thread takes
/// them with sigwait(3), so that their effects may lock and allocate.
enum Signals {
    static let ending = [SIGTERM, SIGINT, SIGHUP]
    static let locking = [SIGUSR1, SIGUSR2]

    /// Blocks signals in this thread and all that it makes later.
    static func block(_ numbers: [Int32]) {
        var set = Self.set(of: numbers)
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Starts the thread that calls `body` with each signal's number. The signals must be blocked.
    static func onArrival(of numbers: [Int32], _ body: @escaping @Sendable (Int32) -> Void) throws(CommandFailure) {
        do throws(StoreError) {
            _ = try BackgroundThread {
                var set = Self.set(of: numbers)
                var number: Int32 = 0
                while sigwait(&set, &number) == 0 { body(number) }
            }
        } catch {
            throw CommandFailure(.failure, "cannot start a thread for signals: \(error.errno)")
        }
    }

    /// Ends this process by the signal, so that its parent sees the signal.
    static func end(by number: Int32) -> Never {
        signal(number, SIG_DFL)
        kill(getpid(), number)
        var set = Self.set(of: [number])
        pthread_sigmask(SIG_UNBLOCK, &set, nil)
        exit(128 + number)
    }

    static func set(of numbers: [Int32]) -> sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for number in numbers { sigaddset(&set, number) }
        return set
    }
}

/// The arrival of a signal that ends the process, for work that must stop in good order. A second signal ends it at once. Any
/// thread.
final class Interruption: Sendable {
    private let number = Atomic<Int32>(0)

    /// - Parameter onArrival: called once, on another thread.
    init(_ onArrival: @escaping @Sendable () -> Void = {}) throws(CommandFailure) {
        Signals.block(Signals.ending)
        try Signals.onArrival(of: Signals.ending) { [self] number in
            guard self.number.exchange(number, ordering: .sequentiallyConsistent) == 0 else { Signals.end(by: number) }
            onArrival()
        }
    }

    /// The signal that arrived.
    var signal: Int32? {
        let number = number.load(ordering: .sequentiallyConsistent)
        return number == 0 ? nil : number
    }
}

/// A small process beside the daemon. A killed daemon may be unable to die: one of its threads waits in the kernel for pages
/// that nobody writes back any more, and the mount hangs. The guardian then ends the FUSE connection. It needs fusectl
/// (systemd mounts it at /sys/fs/fuse/connections) or root. Any thread.
struct Guardian: @unchecked Sendable {
    // @unchecked: the pointer leads to shared memory with one atomic number, which stays mapped.
    private let guardian: OpaquePointer

    /// Nil on failure. The process must have only one thread, which outlives all others.
    static func start() -> Guardian? {
        guard CommandLine.argc > 0, let first = CommandLine.unsafeArgv[0],
            let last = CommandLine.unsafeArgv[Int(CommandLine.argc) - 1]
        else { return nil }
        // The arguments lie one behind the other (execve(2)).
        let size = last + strlen(last) + 1 - first
        guard size > 0, let guardian = linux_start_guardian(first, size) else { return nil }
        return Guardian(guardian: guardian)
    }

    /// To be called once, while the mount exists.
    /// - Parameter device: the mount's. Its minor number is the connection's in fusectl.
    func watch(over device: dev_t) {
        linux_guard_connection(guardian, UInt32(truncatingIfNeeded: device & 0xFF | (device >> 12) & 0xFFF00))
    }
}

/// Notifies a service manager that the mount is ready: sd_notify(3), one datagram to the socket that `NOTIFY_SOCKET` names.
enum ReadinessNotice {
    private static let message = Array("READY=1\n".utf8)

    /// Does not wait: a manager that does not read the socket has its own timeout. Any thread.
    static func send() {
        guard let value = getenv("NOTIFY_SOCKET") else { return }
        var name = Array(UnsafeRawBufferPointer(start: value, count: strlen(value)))
        // A name that is no path begins with a zero byte (unix(7)).
        if name.first == UInt8(ascii: "@") { name[0] = 0 }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard name.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: name) }
        let socket = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard socket >= 0 else { return }
        defer { close(socket) }
        let size = socklen_t(MemoryLayout<sa_family_t>.size + name.count)
        withUnsafeBytes(of: &address) { bytes in
            let address = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress
            _ = sendto(socket, message, message.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT), address, size)
        }
    }
}

/// The log of a daemon in the background: syslog(3), facility daemon.
struct SyslogHandler: LogHandler {
    var logLevel: Logger.Level = .info
    /// Unused.
    var metadata: Logger.Metadata = [:]

    init(label: String) { Self.connection }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        event.message.description.withCString { pointer in
            withVaList([pointer]) { vsyslog(event.level.priority, "%s", $0) }
        }
    }

    /// LOG_DAEMON of <syslog.h>, a macro with a cast that Swift lacks.
    private static let facility: Int32 = 3 << 3

    /// Made once. openlog(3) keeps the pointer to the name, so it is never freed.
    private static let connection: Void = openlog(strdup("vaultfs"), LOG_PID, facility)
}
