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
            Make the empty mountpoint unwritable, so that no plaintext is written to it while nothing is mounted there. It \
            stays so until 'chmod u+w', as root after 'chattr -i'.
            """)
    var guardMountpoint = false

    @OptionGroup(title: "Lock options")
    var lock: LockArguments

    private static let cacheSizes = (1 << 20)...(64 << 30)

    /// Takes the values from `-o`.
    mutating func take(_ list: MountOptionList) throws {
        for name in list.unknown {
            Console.report("unknown mount option '\(name)' is left out: 'man vaultfs' lists the options")
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

    /// Resolves the path of a source: absolute, without links.
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

/// Checks that this machine allows FUSE mounts, before a passphrase is asked for.
enum FuseDevice {
    private static let configurationPath: FilePath = "/etc/fuse.conf"

    /// - Throws: code `cannotMount`.
    static func check(_ list: MountOptionList) throws(CommandFailure) {
        try checkDevice()
        if list.allowsOthers { try checkSharing() }
    }

    private static func checkDevice() throws(CommandFailure) {
        let fd = open("/dev/fuse", O_RDWR | O_CLOEXEC)
        if fd >= 0 {
            close(fd)
            return
        }
        switch currentErrno() {
        case .noSuchFileOrDirectory, .noSuchAddressOrDevice, Errno(rawValue: ENODEV):
            throw CommandFailure(.cannotMount, "no /dev/fuse: load the fuse module ('modprobe fuse' as root)")
        case .permissionDenied, .notPermitted:
            throw CommandFailure(
                .cannotMount, "no permission to open /dev/fuse: its mode is usually 666 ('ls -l /dev/fuse')")
        case let error:
            throw CommandFailure(.cannotMount, "cannot open /dev/fuse: \(error)")
        }
    }

    /// Checks that fusermount3(1) will accept allow_other and allow_root from this user.
    private static func checkSharing() throws(CommandFailure) {
        guard geteuid() != 0 else { return }
        var permits = false
        if let bytes = try? SecretReader.read(path: configurationPath, limit: 1 << 20) {
            let text = bytes.withBytes { String(decoding: $0, as: UTF8.self) }
            permits = text.split(whereSeparator: \.isNewline).contains { line in
                line.split(whereSeparator: \.isWhitespace).joined() == "user_allow_other"
            }
        }
        guard permits else {
            throw CommandFailure(
                .cannotMount, "allow_other and allow_root need the line 'user_allow_other' in \(configurationPath)")
        }
    }
}
