internal import ArgumentParser
internal import BackingStore
internal import Glibc
internal import LockFiles
internal import MountedFileSystem
internal import SystemPackage
internal import VaultCrypto
internal import VaultFileSystem
internal import VaultStore

/// `vaultfs mount VAULT MOUNTPOINT`
struct MountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mount", abstract: "Mount a vault.",
        discussion: """
            Returns when the mount is ready; the daemon goes to the background and logs to syslog. It ends when the \
            mountpoint is unmounted (vaultfs unmount, fusermount3 -u) or on SIGTERM.

            -o takes words as fuse(8) and mount(8) know them, separated by commas: ro, allow_other, allow_root, noexec, \
            nosuid, nodev, noatime, nonempty, fsname=NAME, …; for fstab also passfile=FILE, keyfile=FILE, extpass=CMD, \
            cache_size=SIZE, lock_file=PATH, on_lock=POLICY, idle_lock=DURATION, grace=DURATION, no_kernel_cache. An ordinary user's mounts are always nosuid and nodev.
            """)

    @Argument(help: "The vault directory.")
    var vault: PathArgument

    @Argument(help: "An empty directory.")
    var mountpoint: PathArgument

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

    @OptionGroup(title: "Lock options")
    var lock: LockArguments

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    /// The background process: where the master key comes from and the outcome goes.
    @Option(name: .customLong("daemon-channel"), help: .hidden)
    var daemonChannel: Int32?

    static let cacheSizes = (1 << 20)...(64 << 30)

    mutating func run() throws {
        if daemonChannel != nil { ProcessSetup.setName() }
        ProcessSetup.protectMemory()
        if let daemonChannel {
            // Everything has been checked by the process that was typed.
            ProcessSetup.closeInheritedDescriptors(above: daemonChannel)
            let list = try MountOptionList(options)
            DaemonChild.run(
                MountRequest(
                    vaultPath: vault.path, mountpoint: mountpoint.path, fuseOptions: list.fuseOptions,
                    cacheSize: cacheSize.bytes, isReadOnly: list.isReadOnly,
                    lock: try lock.options(mountpoint: mountpoint.path), bypassesKernelCache: noKernelCache),
                channel: DaemonChannel(descriptor: daemonChannel))
        }
        let list = try MountOptionList(options)
        try takeOptionsOfList(list)
        let directory = try VaultDirectory.open(absolute(vault.path))
        let place = try Mountpoint.check(mountpoint.path, vault: directory, mayBeNonEmpty: list.mayBeNonEmpty)
        let request = MountRequest(
            vaultPath: directory.path, mountpoint: place, fuseOptions: list.fuseOptions, cacheSize: cacheSize.bytes,
            isReadOnly: list.isReadOnly || directory.isOnReadOnlyStore, lock: try lock.options(mountpoint: place),
            bypassesKernelCache: noKernelCache || list.bypassesKernelCache)
        try FuseDevice.check()
        if list.allowsOthers { try FuseDevice.checkSharing() }
        try VaultUse.check(directory, sharing: request.sharing)
        let masterKey = try directory.unlock(with: secret.read())
        if foreground {
            try Daemon.runInForeground(request, masterKey: masterKey)
        } else {
            try DaemonLaunch.run(request, masterKey: masterKey)
            Self.report(request.lock, mountpoint: place)
        }
    }

    /// A mount on which everything is refused looks broken, unless somebody says why.
    private static func report(_ options: LockOptions, mountpoint: FilePath) {
        for file in options.lockFiles {
            let sighting = file.look()
            if sighting.isLocked { Console.report("\(mountpoint.shown) is locked: \(file.describe(sighting))") }
        }
    }

    /// What fstab can only say within `-o`.
    private mutating func takeOptionsOfList(_ list: MountOptionList) throws {
        if let text = list.ours["passfile"] { secret.passfile = PathArgument(argument: text) }
        if let text = list.ours["keyfile"] { secret.keyfile = PathArgument(argument: text) }
        if let text = list.ours["extpass"] { secret.extpass = text }
        try secret.validate()
        try lock.take(list)
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

    private func absolute(_ path: FilePath) throws(CommandFailure) -> FilePath {
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
