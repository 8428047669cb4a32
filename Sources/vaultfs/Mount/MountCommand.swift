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

            -o takes words as fuse(8) and mount(8) know them, separated by commas: ro, allow_other, allow_root, noexec, \
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
            Read-only, beside another machine or mount that may be writing the vault: what is shown is a second old at most \
            (and as old as the store's own caches let it be).
            """)
    var shared = false

    /// The background process: the id of the slot that the secret came from.
    @Option(help: .hidden)
    var openedSlot: Int?

    @Flag(
        help: """
            Ask the --provider again, in the background, as soon as no lock file locks any more: a vault that forgets \
            (--on-lock forget) is then open before anybody wants it.
            """)
    var prewarm = false

    @OptionGroup
    var mount: MountArguments

    @OptionGroup(title: "Secret options")
    var secret: SecretOptions

    @OptionGroup(title: "Secret options")
    var slots: SlotChoiceOptions

    mutating func run() throws {
        if mount.daemonChannel != nil { ProcessSetup.setName() }
        ProcessSetup.protectMemory()
        let list = try MountOptionList(mount.options)
        if let channel = mount.daemonChannel, let openedSlot {
            // Everything has been checked by the process that was typed.
            ProcessSetup.closeInheritedDescriptors(above: channel)
            DaemonChild.run(
                VaultSubject(slot: openedSlot, provider: prewarm ? secret.keyProvider : nil),
                try request(list, vault.path, at: mountpoint.path),
                channel: DaemonChannel(descriptor: channel))
        }
        try secret.take(list)
        try mount.take(list)
        if list.prewarms { prewarm = true }
        if prewarm && (secret.provider == nil || mount.lock.onLock != .forget) {
            throw CommandFailure(.usage, "--prewarm asks a --provider, where the keys are forgotten: --on-lock forget")
        }
        let directory = try VaultDirectory.open(MountArguments.resolve(vault.path))
        let place = try Mountpoint.check(
            mountpoint.path, source: .init(vault: directory), mayBeNonEmpty: list.mayBeNonEmpty,
            isGuarded: mount.guardMountpoint)
        let request = try request(
            list, directory.path, at: place, isOnReadOnlyStore: directory.isOnReadOnlyStore)
        try MountArguments.checkDevice(list)
        if let sharing = request.sharing { try VaultUse.check(directory, sharing: sharing) }
        let opened = try slots.open(directory, with: secret.read(for: directory.configuration))
        try DaemonLaunch.run(
            VaultSubject(slot: opened.slot.id, provider: prewarm ? secret.keyProvider : nil), request,
            secret: opened.masterKey, inForeground: mount.foreground)
    }

    private func request(
        _ list: MountOptionList, _ source: FilePath, at place: FilePath, isOnReadOnlyStore: Bool = false
    ) throws(CommandFailure) -> MountRequest {
        let isShared = shared || list.isShared
        var request = try mount.request(
            list, source: source, mountpoint: place, isReadOnly: isShared || list.isReadOnly || isOnReadOnlyStore)
        request.isShared = isShared
        return request
    }
}
