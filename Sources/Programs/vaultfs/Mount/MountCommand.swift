internal import ArgumentParser
internal import Daemon
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// `vaultfs mount VAULT [MOUNTPOINT]`
struct MountCommand: MountingCommand {
    static let configuration = CommandConfiguration(
        commandName: "mount", abstract: "Mount a vault.",
        discussion: """
            Returns when the mount is ready; the daemon goes to the background and logs to syslog. It ends when the \
            mountpoint is unmounted (vaultfs unmount, fusermount3 -u) or on SIGTERM, with exit code \
            \(FailureCode.notDurable.rawValue) unless all is in place.

            -o takes the words of fuse(8) and mount(8), separated by commas (ro, allow_other, nonempty, …), and for fstab \
            most options of this command (idle_lock=5m, guard_mountpoint, passfile=FILE, …): vaultfs-system(7) lists them. An \
            ordinary user's mounts are always nosuid and nodev.
            """)

    private static let desktopKeyring = "--desktop-keyring"

    @Argument(help: "The vault directory, or its label in 'vaultfs list'.", completion: Completions.vaults)
    var vault: PathArgument

    @Argument(
        help: """
            An empty directory. Made if it is missing in a directory of yours; 'unmount' then removes it. May be left out \
            for a vault in 'vaultfs list': it is then that of the last mount, with the same options.
            """,
        completion: .directory)
    var mountpoint: PathArgument?

    @Flag(name: [.customLong("read-only"), .customLong("ro")], help: "Read-only, as with -o ro.")
    var readOnly = false

    @Flag(
        help: """
            Read-only, beside another machine or mount that may be writing the vault. Changes appear after a second or so.
            """)
    var shared = false

    @Flag(
        help: """
            With --on-lock forget: ask the --provider or keyring again, in the background, as soon as no lock file \
            locks the vault.
            """)
    var prewarm = false

    @OptionGroup
    var remembering: RememberingOptions

    @OptionGroup
    var mount: MountArguments

    @OptionGroup(title: "Lock options")
    var lock: LockArguments

    @OptionGroup(title: "Secret options")
    var secret: VaultSecretOptions

    mutating func run() throws {
        ProcessSetup.protectMemory()
        var list = try MountOptionList(mount.options)
        try mount.apply(&list)
        if list.prewarms { prewarm = true }
        if prewarm && (secret.options.keyProvider == nil || lock.onLock != .forget) {
            throw CommandFailure(.usage, "--prewarm needs --provider or --desktop-keyring, and --on-lock forget")
        }
        let directory = try openVault()
        try remembering.check(directory, at: directory.path)
        let last = mountpoint == nil ? try KnownVaults.entry(of: directory)?.mountpoint : nil
        guard let mountpoint = mountpoint?.path ?? last.map({ FilePath($0) }) else {
            throw CommandFailure(.usage, "missing mountpoint: \(directory.path.shown) was not mounted before")
        }
        let target = try Mountpoint.check(
            mountpoint, source: "vault \(directory.path.shown)", root: directory.descriptor,
            list.serving,
            isMade: !mount.noMkdir)
        target.apply(to: &list.serving)
        if shared { list.isShared = true }
        if readOnly || list.isShared || directory.isOnReadOnlyStore { list.serving.isReadOnly = true }
        let locking = try lock.options(mountpoint: target.path)
        if let sharing = VaultDirectory.Sharing(isShared: list.isShared, isReadOnly: list.serving.isReadOnly) {
            try VaultUse.check(directory, sharing: sharing)
        }
        let opened = try secret.open(directory)
        let request = MountRequest(
            source: directory.path, mountpoint: target.path, options: list.serving, lock: locking,
            logLevel: mount.logLevel.level)
        let vault = VaultMount(
            slot: opened.slot.id, isShared: list.isShared, accessTimes: list.accessTimes,
            cacheSize: mount.cacheSize.bytes, provider: prewarm ? secret.options.keyProvider : nil)
        // A mount in the foreground does not return, so remember it now.
        if mount.foreground { remember(directory, at: target.path, locking.lockFiles) }
        try VaultOrView.vault(vault).mount(
            request, on: target, secret: opened.masterKey, inForeground: mount.foreground)
        if !mount.foreground { remember(directory, at: target.path, locking.lockFiles) }
    }

    private func remember(_ directory: VaultDirectory, at mountpoint: FilePath, _ files: [LockFile]) {
        let flags = [
            readOnly ? "--read-only" : nil, shared ? "--shared" : nil,
            secret.options.desktopKeyring ? Self.desktopKeyring : nil,
        ]
        let words = flags.compactMap(\.self) + mount.words + lock.words(files)
        remembering.remember(directory) { vault in
            // A mount by its label alone has the remembered options among its own. Remembering those again would add
            // what was given this time, at each mount.
            if self.mountpoint == nil { return }
            vault.mountpoint = String(validating: mountpoint.bytes, as: UTF8.self)
            vault.options = words.isEmpty ? nil : words
        }
    }

    /// Returns the arguments of the program, with those of an earlier mount before them if the user means these.
    func recalled(before arguments: [String]) throws(CommandFailure) -> [String] {
        guard mountpoint == nil, let options = try KnownVaults.entry(of: openVault())?.options else {
            return arguments
        }
        // There is one source of the secret, and a given one counts.
        let kept = secret.options.isGiven ? options.filter { $0 != Self.desktopKeyring } : options
        return arguments.prefix(1) + kept + arguments.dropFirst()
    }

    /// - Throws: code `usage` if the two paths are the wrong way round.
    private func openVault() throws(CommandFailure) -> VaultDirectory {
        do throws(CommandFailure) {
            return try GivenVault.open(MountArguments.resolve(GivenVault.path(vault.path)))
        } catch {
            guard error.code == .notAVault, let mountpoint, GivenVault.isOne(mountpoint.path) else { throw error }
            let (given, meant) = (vault.path.shown, mountpoint.path.shown)
            throw CommandFailure(
                .usage, "\(given) is no vault, and \(meant) is one: did you mean 'vaultfs mount \(meant) \(given)'?")
        }
    }
}
