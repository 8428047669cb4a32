internal import ArgumentParser
internal import Glibc
internal import Locking
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs mount VAULT MOUNTPOINT`
struct MountCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "mount", abstract: "Mount a vault.",
        discussion: """
            Returns when the mount is ready; the daemon goes to the background and logs to syslog. It ends when the \
            mountpoint is unmounted (vaultfs unmount, fusermount3 -u) or on SIGTERM.

            -o takes the words of fuse(8) and mount(8), separated by commas: ro, allow_other, allow_root, noexec, \
            nosuid, nodev, noatime, nonempty, fsname=NAME, …; for fstab also passfile=FILE, keyfile=FILE, extpass=CMD, \
            passphrase_fd=N, keyring=DESCRIPTION, credential=NAME, provider=CMD, cache_size=SIZE, lock_file=PATH, \
            on_lock=POLICY, idle_lock=DURATION, grace=DURATION, shared, no_kernel_cache, guard_mountpoint, prewarm. An \
            ordinary user's mounts are always nosuid and nodev.
            """)

    @Argument(help: "The vault directory.")
    var vault: PathArgument

    @Argument(help: "An empty directory.")
    var mountpoint: PathArgument

    @Flag(
        help: """
            Read-only, beside another machine or mount that may be writing the vault. Changes appear after at most a \
            second (and the time that the store's own caches take).
            """)
    var shared = false

    @Flag(
        help: """
            Ask the --provider again, in the background, as soon as no lock file locks the vault. A vault that forgets \
            its keys (--on-lock forget) is then unlocked before it is used.
            """)
    var prewarm = false

    @OptionGroup
    var mount: MountArguments

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions

    mutating func run() throws {
        ProcessSetup.protectMemory()
        let list = try MountOptionList(mount.options)
        try secret.take(list)
        try mount.take(list)
        if list.prewarms { prewarm = true }
        if prewarm && (secret.provider == nil || mount.lock.onLock != .forget) {
            throw CommandFailure(.usage, "--prewarm needs --provider and --on-lock forget")
        }
        let directory = try VaultDirectory.open(MountArguments.resolve(vault.path))
        let target = try Mountpoint.check(
            mountpoint.path, source: .init(vault: directory), mayBeNonEmpty: list.mayBeNonEmpty,
            isGuarded: mount.guardMountpoint)
        let isShared = shared || list.isShared
        var request = try mount.request(
            list, source: directory.path, mountpoint: target,
            isReadOnly: isShared || list.isReadOnly || directory.isOnReadOnlyStore)
        request.isShared = isShared
        try FuseDevice.check(list)
        if let sharing = request.sharing { try VaultUse.check(directory, sharing: sharing) }
        let opened = try slots.open(directory, with: secret.read(for: directory.configuration))
        try DaemonLaunch.run(
            .vault(VaultSubject(slot: opened.slot.id, provider: prewarm ? secret.keyProvider : nil)), request,
            secret: opened.masterKey, inForeground: mount.foreground)
    }
}
