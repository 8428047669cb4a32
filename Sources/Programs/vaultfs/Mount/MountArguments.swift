internal import ArgumentParser
internal import Control
internal import Daemon
internal import LinuxSystem
internal import Locking
internal import Logging
internal import SystemPackage
internal import VaultStore

/// A command that mounts: `mount` or `view`.
protocol MountingCommand: ParsableCommand {
    var mount: MountArguments { get }
}

/// The options of every mount, vault or view.
struct MountArguments: ParsableArguments {
    @Flag(name: [.customShort("f"), .long], help: "Stay in the foreground and log to stderr.")
    var foreground = false

    @Option(name: .customShort("o"), help: ArgumentHelp("Mount options.", valueName: "options"))
    var options: [String] = []

    @Option(help: ArgumentHelp("Memory for decrypted blocks: bytes, or with K, M, G.", valueName: "size"))
    var cacheSize = usualCacheSize

    @Flag(
        help: """
            Keep plaintext out of the kernel's page cache: slower, and no program can map a file shared. Programs run \
            from the mount are cached all the same.
            """)
    var noKernelCache = false

    @Flag(
        help: """
            Make the empty mountpoint unwritable, so that nothing is written to it while the vault is not mounted. \
            'chmod u+w' undoes it, as root after 'chattr -i'.
            """)
    var guardMountpoint = false

    @Flag(help: "Refuse a mountpoint that is missing.")
    var noMkdir = false

    @Option(
        help: ArgumentHelp(
            "Unmount after this time without a request and without an open file.", valueName: "duration"),
        transform: DurationArgument.parse)
    var idleUnmount: DurationArgument?

    @Option(
        help: ArgumentHelp(
            "Bytes that the kernel reads ahead of a program that reads a file from its start; takes root.",
            valueName: "size"))
    var readAhead: ByteSize?

    @Option(
        help: ArgumentHelp("Log messages from this level on.", valueName: "level"))
    var logLevel = LogLevel.info

    private static let usualCacheSize = ByteSize(32 << 20)
    private static let cacheSizes = (1 << 20)...(64 << 30)
    private static let readAheads = (4 << 10)...(64 << 20)

    /// Adds the options to those of `-o`.
    func apply(_ list: inout MountOptionList) throws(CommandFailure) {
        for name in list.unknown {
            Console.report(
                "unknown mount option '\(shown(name.utf8))' is left out: 'man vaultfs-system' lists the options")
        }
        if noKernelCache { list.serving.bypassesKernelCache = true }
        if guardMountpoint { list.serving.guardsMountpoint = true }
        guard !(list.serving.guardsMountpoint && list.serving.mayBeNonEmpty) else {
            throw CommandFailure(.usage, "--guard-mountpoint is for an empty mountpoint: leave '-o nonempty' out")
        }
        guard idleUnmount?.milliseconds != 0 else {
            throw CommandFailure(.usage, "--idle-unmount 0 would always unmount")
        }
        list.serving.idleUnmountMilliseconds = idleUnmount?.milliseconds
        // libfuse 3.14 knows this word about access times.
        if list.accessTimes.keepsFiles { list.serving.fuseOptions.append("noatime") }
        list.serving.readAhead = readAhead?.bytes
        if let readAhead, !Self.readAheads.contains(readAhead.bytes) {
            throw CommandFailure(.usage, "read-ahead \(readAhead) is not in 4K…64M")
        }
        guard Self.cacheSizes.contains(cacheSize.bytes) else {
            throw CommandFailure(.usage, "cache size \(cacheSize) is not in 1M…64G")
        }
    }

    /// The options as on a command line, to be given again at the next mount.
    var words: [String] {
        var words = MountOptionList.withoutOwn(options).flatMap { ["-o", $0] }
        if cacheSize.bytes != Self.usualCacheSize.bytes { words.append("--cache-size=\(cacheSize)") }
        if noKernelCache { words.append("--no-kernel-cache") }
        if guardMountpoint { words.append("--guard-mountpoint") }
        if noMkdir { words.append("--no-mkdir") }
        if let idleUnmount { words.append("--idle-unmount=\(idleUnmount)") }
        if let readAhead { words.append("--read-ahead=\(readAhead)") }
        if logLevel != .info { words.append("--log-level=\(logLevel.rawValue)") }
        return words
    }

    /// Resolves the path of a source to an absolute one without links.
    static func resolve(_ path: FilePath) throws(CommandFailure) -> FilePath {
        do throws(Errno) {
            return try ResolvedPath.of(path)
        } catch {
            guard error == .noSuchFileOrDirectory else {
                throw CommandFailure(.failure, "cannot open \(path.shown): \(error)")
            }
            throw CommandFailure(.notFound(path))
        }
    }
}

/// The options for the times and effects of locks.
struct LockArguments: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Lock while anything is at this path; may be given several times. Default: device.lock in the run-time directory.",
            valueName: "path"))
    var lockFile: [PathArgument] = []

    @Option(
        help: ArgumentHelp(
            "Effect of a lock on the keys: refuse (they stay in protected memory) or forget (unlocking needs a secret).",
            valueName: "policy"))
    var onLock: LockPolicy = .refuse

    @Option(
        help: ArgumentHelp("Lock after this time without a request, even if files are open.", valueName: "duration"),
        transform: DurationArgument.parse)
    var idleLock: DurationArgument?

    @Option(
        help: ArgumentHelp(
            "Time before a lock in which programs may finish writing their open files.", valueName: "duration"),
        transform: DurationArgument.parse)
    var grace = DurationArgument(milliseconds: 0)

    /// The options as on a command line, to be given again at the next mount.
    /// - Parameter files: the lock files, with absolute paths.
    func words(_ files: [LockFile]) -> [String] {
        var words = lockFile.isEmpty ? [] : files.map { "--lock-file=" + ProcessArguments.text(of: $0.path.bytes) }
        if onLock != .refuse { words.append("--on-lock=\(onLock.rawValue)") }
        if let idleLock { words.append("--idle-lock=\(idleLock)") }
        if grace.milliseconds > 0 { words.append("--grace=\(grace)") }
        return words
    }

    func validate() throws {
        if idleLock?.milliseconds == 0 { throw ValidationError("--idle-lock 0 would always lock") }
    }

    /// Resolves and checks the lock files' directories.
    /// - Parameter mountpoint: refused as the directory of a lock file, because the mount would ask itself.
    func options(mountpoint: FilePath) throws(CommandFailure) -> LockOptions {
        var files: [LockFile] = []
        for path in try lockFile.isEmpty ? [Self.defaultPath()] : lockFile.map(\.path) {
            let file: LockFile
            do throws(LockFileError) { file = try LockFile(path: path) } catch {
                throw CommandFailure(.failure, error.description)
            }
            guard !file.path.starts(with: mountpoint) else {
                throw CommandFailure(.usage, "lock file \(file.path.shown) lies in the mount that it locks")
            }
            files.append(file)
        }
        return LockOptions(
            lockFiles: files, policy: onLock, graceMilliseconds: grace.milliseconds,
            idleMilliseconds: idleLock?.milliseconds)
    }

    /// The name of the default lock file, in the run-time directory.
    static let usualName = "device.lock"

    private static func defaultPath() throws(CommandFailure) -> FilePath {
        do throws(ControlError) { return try RuntimeDirectory.make().path.appending(usualName) } catch {
            throw CommandFailure(.failure, "\(error): name a lock file with --lock-file")
        }
    }
}

extension LockPolicy: ExpressibleByArgument {}

/// `--log-level`
enum LogLevel: String, CaseIterable, ExpressibleByArgument {
    case debug, info, notice, warning, error, critical

    var level: Logger.Level { Logger.Level(rawValue: rawValue) ?? .info }
}
