internal import ArgumentParser
internal import Daemon
internal import LinuxSystem
internal import Locking
internal import SystemPackage
internal import ViewFormats

/// `vaultfs view FORMAT SOURCE MOUNTPOINT`
struct ViewCommand: MountingCommand {
    static let configuration = CommandConfiguration(
        commandName: "view", abstract: "Mount other programs' AES-CBC files, read-only.",
        discussion: """
            Formats:
              cbc-chunks  plaintext cut in pieces, each encrypted and padded by itself
              cbc         each file is one CBC stream
              openssl     files made by 'openssl enc' with a passphrase
              hls         a download with .m3u8 playlists and METHOD=AES-128
              mp4         MP4 files with the schemes cbcs and cbc1 (FairPlay and others), also beside other files

            SOURCE is a file or a directory. The mount shows the same tree. A view.json in it can give single files keys and \
            parameters of their own. These formats cannot detect a changed file. A wrong key shows only as bad padding, in \
            all but one of 256 cases: opening such a file is an error. With mp4 a wrong key does not show at all: the picture \
            is broken.

            Mounting, locking and unmounting work as for a vault, with the same options.
            """)

    @Argument(help: ArgumentHelp("cbc-chunks, cbc, openssl, hls or mp4.", valueName: "format"))
    var formatName: ViewFormatName

    @Argument(help: "A file or a directory.")
    var source: PathArgument

    @Argument(
        help: "An empty directory. Made if it is missing in a directory of yours; 'unmount' then removes it.",
        completion: .directory)
    var mountpoint: PathArgument

    @OptionGroup(title: "Format options")
    var options: ViewOptions

    @Flag(help: "Fetch or derive all keys in the background after the mount, not when a file is opened.")
    var prewarm = false

    @OptionGroup(title: "Options of mount")
    var mount: MountArguments

    @OptionGroup(title: "Options of mount")
    var lock: LockArguments

    @OptionGroup(title: "Secret options")
    var passphrase: PassphraseOptions

    func validate() throws { try options.validate(for: formatName) }

    mutating func run() throws {
        ProcessSetup.protectMemory()
        var list = try MountOptionList(mount.options)
        if list.isShared {
            throw CommandFailure(.usage, "mount option 'follow_writer' is for vaults: a view always follows its source")
        }
        try mount.apply(&list)
        list.serving.isReadOnly = true
        if prewarm { list.prewarms = true }
        try options.makeAbsolute()
        let view = ViewArguments(formatName: formatName, options: options)
        try view.check(passphrase)
        let path = try CommandFailure.wrapping("cannot open", source.path, try ResolvedPath.of(source.path))
        let location = try view.location(path)
        let root = location.onlyName == nil ? location.root : nil
        let target = try Mountpoint.check(
            mountpoint.path, source: "source \(path.shown)", root: root, list.serving,
            isMade: !mount.noMkdir)
        target.apply(to: &list.serving)
        let request = MountRequest(
            source: path, mountpoint: target.path, options: list.serving,
            lock: try lock.options(mountpoint: target.path), logLevel: mount.logLevel.level)
        if request.lock.policy == .forget { try view.checkKeyFileStays() }
        let secret = try view.readSecret(passphrase)
        Console.report("warning: this format cannot detect tampering")
        let contents = ViewMount(arguments: view, cacheSize: mount.cacheSize.bytes, prewarms: list.prewarms)
        try VaultOrView.view(contents).mount(
            request, on: target, secret: secret, inForeground: mount.foreground)
    }
}
