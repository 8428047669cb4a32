internal import ArgumentParser
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultStore

/// The options of every mount, vault or view.
struct MountArguments: ParsableArguments {
    @Flag(name: [.customShort("f"), .long], help: "Stay in the foreground and log to stderr.")
    var foreground = false

    @Option(name: .customShort("o"), help: ArgumentHelp("Mount options.", valueName: "options"))
    var options: [String] = []

    @Option(help: ArgumentHelp("Memory for decrypted blocks: bytes, or with K, M, G.", valueName: "size"))
    var cacheSize: ByteSize = ByteSize(32 << 20)

    @Flag(
        help: """
            Keep plaintext out of the kernel's page cache: slower, and no program can map a file shared. Programs run \
            from the mount are cached all the same.
            """)
    var noKernelCache = false

    @Flag(
        help: """
            Make the empty mountpoint unwritable, so that nothing is left in it as plaintext while nothing is mounted there. \
            It stays so: 'chmod u+w' ends it, for root's after 'chattr -i'.
            """)
    var guardMountpoint = false

    @OptionGroup(title: "Lock options")
    var lock: LockArguments

    /// The background process: where the secret comes from and the outcome goes.
    @Option(name: .customLong("daemon-channel"), help: .hidden)
    var daemonChannel: Int32?

    private static let cacheSizes = (1 << 20)...(64 << 30)

    /// What fstab can only say within `-o`.
    mutating func take(_ list: MountOptionList) throws {
        for name in list.unknown {
            Console.report("unknown mount option '\(name)' is left out: 'man vaultfs' lists those there are")
        }
        try lock.take(list)
        if list.guardsMountpoint { guardMountpoint = true }
        guard !(guardMountpoint && list.mayBeNonEmpty) else {
            throw CommandFailure(.usage, "--guard-mountpoint is for an empty mountpoint: leave '-o nonempty' out")
        }
        if let text = list.ours["cache_size"] {
            guard let size = ByteSize(argument: text) else {
                throw CommandFailure(.usage, "mount option cache_size='\(text)' is not a size")
            }
            cacheSize = size
        }
        guard Self.cacheSizes.contains(cacheSize.bytes) else {
            throw CommandFailure(.usage, "cache size \(cacheSize) is not in 1M…64G")
        }
    }

    /// - Parameters:
    ///   - source: absolute.
    ///   - mountpoint: absolute, without links.
    func request(
        _ list: MountOptionList, source: FilePath, mountpoint: FilePath, isReadOnly: Bool
    ) throws(CommandFailure) -> MountRequest {
        MountRequest(
            source: source, mountpoint: mountpoint, fuseOptions: list.fuseOptions, cacheSize: cacheSize.bytes,
            isReadOnly: isReadOnly, lock: try lock.options(mountpoint: mountpoint),
            bypassesKernelCache: noKernelCache || list.bypassesKernelCache,
            guardsMountpoint: guardMountpoint, accessTimes: list.accessTimes)
    }

    /// Checks that a mount can be had at all, before anybody is asked for a secret.
    static func checkDevice(_ list: MountOptionList) throws {
        try FuseDevice.check()
        if list.allowsOthers { try FuseDevice.checkSharing() }
    }

    /// The path of what is to be mounted, absolute and without links.
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
