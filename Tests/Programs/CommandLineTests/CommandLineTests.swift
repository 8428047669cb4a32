import Daemon
import FuseSession
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultStore

@testable import vaultfs

@Suite struct MountOptionListTests {
    @Test("a list to be remembered has neither our options, which may be relative to a directory, nor secrets")
    func withoutOwn() {
        let given = ["nosuid,lock_file=x,passfile=a\\,b,idle-lock=5m,fsname=a\\,b", "keyfile=z,prewarm"]
        #expect(MountOptionList.withoutOwn(given) == ["nosuid,fsname=a\\,b"])
    }

    @Test("words go on to FUSE in order, the last of ro and rw holds")
    func wordsGoOnToFuse() throws {
        let list = try MountOptionList(["noexec,ro", "allow_other,rw", "nodev,ro"])
        #expect(list.serving.fuseOptions == ["noexec", "allow_other", "nodev"])
        #expect(list.serving.isReadOnly)
        #expect(list.serving.allowsOthers)
        #expect(try !MountOptionList(["ro,rw"]).serving.isReadOnly)
    }

    @Test("options for mount and systemd are accepted and dropped")
    func optionsForMountAndSystemd() throws {
        let list = try MountOptionList([
            "defaults,auto,noauto,nofail,_netdev,nouser,user=ada,comment,comment=b,,",
            "nousers,noowner,nogroup,_rnetdev,helper=x,uhelper=udisks2",
            "x-systemd.automount,x-gvfs-name=a,X-mount.mkdir=0700,relatime,strictatime,lazytime,nomand,iversion,loud",
        ])
        #expect(list == (try MountOptionList([])))
    }

    @Test(
        "user, users, owner and group imply the options that mount(8) names, until a later word",
        arguments: [
            ("users", ["noexec", "nosuid", "nodev"]), ("exec,user", ["exec", "noexec", "nosuid", "nodev"]),
            ("users,exec", ["noexec", "nosuid", "nodev", "exec"]), ("owner,dev", ["nosuid", "nodev", "dev"]),
            ("group", ["nosuid", "nodev"]),
        ]
    )
    func userAndOwnerImplyOptions(words: String, passedOn: [String]) throws {
        #expect(try MountOptionList([words]).serving.fuseOptions == passedOn)
    }

    @Test(
        "values keep commas and backslashes",
        arguments: [
            ("fsname=a", "fsname=a"), ("fsname=a\\,b", "fsname=a\\,b"), ("fsname=a\\\\b", "fsname=a\\\\b"),
            ("fsname=a=b", "fsname=a=b"), ("max_read=4096", "max_read=4096"),
        ]
    )
    func valuesKeepCommasAndBackslashes(option: String, passedOn: String) throws {
        let list = try MountOptionList([option])
        #expect(list.serving.fuseOptions == [passedOn])
        // The background process parses these arguments again.
        #expect(try MountOptionList([list.serving.fuseOptions.joined(separator: ",")]) == list)
    }

    @Test(
        "access times are the daemon's, and no words for libfuse",
        arguments: [
            ("atime", false, false), ("noatime", true, true), ("nodiratime", false, true),
            ("noatime,atime", false, false),
            ("nodiratime,diratime", false, false), ("noatime,diratime", true, true), ("atime,nodiratime", false, true),
        ]
    )
    func accessTimesAreDaemons(words: String, files: Bool, directories: Bool) throws {
        let list = try MountOptionList([words])
        #expect(list.accessTimes == AccessTimes(keepsFiles: files, keepsDirectories: directories))
        #expect(list.serving.fuseOptions.isEmpty)
    }

    @Test("options of fstab for vaultfs, and those for mount(8)")
    func fstabOptions() throws {
        let list = try MountOptionList(["passfile=/p,cache_size=64M,keyfile=/k,extpass=cat /p"])
        #expect(
            list.ours == ["--passfile=/p", "--cache-size=64M", "--keyfile=/k", "--extpass=cat /p"])
        #expect(list.serving.fuseOptions.isEmpty)
        #expect(try MountOptionList(["guard_mountpoint"]).serving.guardsMountpoint)
    }

    @Test(
        "an unknown option that may be a misspelt protection is refused",
        arguments: [
            ("onlock=forget", "unknown mount option 'onlock'"), ("lock_flie=/x", "unknown mount option 'lock_flie'"),
            ("share", "unknown mount option 'share'"), ("nosiud", "unknown mount option 'nosiud'"),
            ("read_only", "unknown mount option 'read_only'"), ("idlelock", "unknown mount option 'idlelock'"),
            ("password=secret", "unknown mount option 'password'"), ("key=x", "unknown mount option 'key'"),
            ("fsname", "mount option 'fsname' needs a value: fsname=…"),
            ("max_read=many", "mount option max_read='many' is not a byte count of at least 4096"),
            ("passphrase=secret", "unknown mount option 'passphrase'"),
            ("nosymfollow", "unknown mount option 'nosymfollow'"),
            ("remount", "a mount cannot be changed: unmount it, and mount it again"),
            ("allow_other=1", "unknown mount option 'allow_other'"),
            ("noatime=1", "unknown mount option 'noatime'"), ("idle\nlock", "unknown mount option 'idle?lock'"),
            ("max_read=1\n2", "mount option max_read='1?2' is not a byte count of at least 4096"),
        ]
    )
    func unknownOptionThatMay(option: String, message: String) {
        let hint = message.hasPrefix("unknown") ? ": 'man vaultfs-system' lists the options" : ""
        #expect(throws: CommandFailure(.usage, message + hint)) { try MountOptionList([option]) }
    }

    @Test(
        "options for other file systems are left out",
        arguments: [
            "bogus", "uid=1000", "gid=1000", "umask=022", "discard", "acl", "user_xattr", "compress=zstd",
            "errors=remount-ro",
            "subtype=x", "fd=3", "data=ordered", "utf8", "posix", "rsize=8192", "hard", "intr", "vers=4.2",
            "auto_unmount", "auto_cache", "kernel_cache", "sync_read", "async_read", "nolock", "lock", "noacl",
            "nouser_xattr",
            "nodiscard", "inode64", "allow_utime=0022", "rootmode=40000", "sharecache", "noac", "soft", "big_writes",
            "noauto_da_alloc",
        ]
    )
    func optionsForOtherFileSystems(option: String) throws {
        let list = try MountOptionList([option, "ro"])
        #expect(list.serving.fuseOptions.isEmpty && list.serving.isReadOnly)
        #expect(list.unknown == [String(option.prefix { $0 != "=" })])
    }
}

@Suite struct ExitCodeTests {
    @Test("a daemon's exit codes are those of the commands", arguments: MountError.Kind.allCases)
    func daemonExitCodes(kind: MountError.Kind) {
        #expect("\(CommandFailure(MountError(kind, reason: "")).code)" == "\(kind)")
    }
}

@Suite struct CommandNameTests {
    @Test(
        "others are left to the parser",
        arguments: [
            ["mount", "a", "b"], ["slot", "add", "v"], ["help", "x"], ["--version"], [], ["slot"], ["slot", "--help"],
            ["--generate-completion-script", "bash"], ["-h"], ["--help"],
        ]
    )
    func othersAreLeftToParser(arguments: [String]) {
        #expect(VaultFS.unknownCommand(arguments) == nil)
    }
}

@Suite struct FoundEntryTests {
    @Test("another user's mount of the same source is not taken for the vault's")
    func foreignMount() throws {
        func table(_ users: [Int]) -> [MountTable.Entry] {
            let lines = users.enumerated().map { "\($0) 0 0:1 / /m\($0) rw - fuse.vaultfs /v rw,user_id=\($1)\n" }
            return MountTable(parsing: Array(lines.joined().utf8)).mounts(from: Array("/v".utf8))
        }
        #expect(try MountTable.Entry.only(table([1000, 0]), of: "/v", user: 0).mountpoint == Array("/m1".utf8))
        let foreign = #expect(throws: CommandFailure.self) {
            try MountTable.Entry.only(table([4_000_000_000]), of: "/v", user: 0)
        }
        #expect(foreign?.code == .mountpoint)
        #expect(foreign?.message == "/v is mounted by user 4000000000 at /m0: name that mountpoint")
        let refused = #expect(throws: CommandFailure.self) {
            try MountTable.Entry.only(table([0]), of: "/v", user: 1000)
        }
        #expect(refused?.message == "/v is mounted by root at /m0: only they or root can use it")
        #expect(throws: CommandFailure.self) { try MountTable.Entry.only(table([0, 0]), of: "/v", user: 0) }
    }
}

@Suite struct ProcessArgumentsTests {
    @Test(
        "any bytes survive as text",
        arguments: [
            [], Array("plain".utf8), Array("größe €𝄞".utf8), [0xFF], [0x61, 0xC3], [0xE2, 0x82], [0xED, 0xA0, 0x80],
            // The spelling uses U+10FF41 for a byte, so here is the character itself.
            [0xF4, 0x8F, 0xBD, 0x81], [0xF4, 0x90, 0x80, 0x80], Array(1...255),
        ] as [[UInt8]]
    )
    func anyBytesSurviveAsText(bytes: [UInt8]) {
        #expect(ProcessArguments.bytes(of: ProcessArguments.text(of: bytes)) == bytes)
    }

    @Test("valid text stays as it is")
    func validTextStays() {
        #expect(ProcessArguments.text(of: Array("größe €𝄞".utf8)) == "größe €𝄞")
    }

    @Test(
        "called by mount",
        arguments: [
            (["/vault", "/mount", "-o", "rw"], true), (["vaults/a", "mount", "-o", "rw"], true),
            (["mount", "/vault", "-o", "rw"], false), (["--foreground=/", "x", "-o", "rw"], false), (["/vault"], false),
            (["/vault", "/mount"], false), (["/vault", "/mount", "-o"], false), ([], false),
        ] as [([String], Bool)]
    )
    func calledByMount(arguments: [String], isMountHelper: Bool) {
        #expect(ProcessArguments.isMountHelper(arguments) == isMountHelper)
    }

    @Test("paths are bytes")
    func pathsAreBytes() {
        let bytes: [UInt8] = [0x2F, 0x61, 0xFF, 0x0A]
        #expect(FilePath(bytes: bytes).bytes == bytes)
        #expect(PathArgument(argument: ProcessArguments.text(of: bytes))?.path.bytes == bytes)
        #expect(PathArgument(argument: "") == nil)
    }
}

@Suite struct ArgumentValueTests {
    @Test(
        "sizes",
        arguments: [
            ("4096", 4096), ("32M", 32 << 20), ("1GiB", 1 << 30), ("1k", 1024), ("2KB", 2048), ("0", 0), ("7B", 7),
        ]
    )
    func sizesWithUnits(text: String, bytes: Int) {
        #expect(ByteSize(argument: text)?.bytes == bytes)
    }

    @Test(
        "text that is no size is refused", arguments: ["", "M", "-1", "1.5M", "1X", "1iB", "99999999999G", "1 M", "٣"])
    func textThatIsNoSize(text: String) {
        #expect(ByteSize(argument: text) == nil)
    }

    @Test("sizes shown", arguments: [(4096, "4K"), (33_554_432, "32M"), (5000, "5000"), (0, "0")])
    func sizesShown(bytes: Int, text: String) {
        #expect(ByteSize(bytes).description == text)
    }

    @Test(
        "times",
        arguments: [
            ("5s", 5000), ("500ms", 500), ("1m", 60_000), ("3", nil), ("0", 0), ("0s", 0), ("s", nil), ("-1s", nil),
            ("99999999999999999999s", nil), ("9223372036854775807m", nil),
        ] as [(String, Int?)]
    )
    func timesWithUnits(text: String, milliseconds: Int?) {
        #expect(DurationArgument(argument: text)?.milliseconds == milliseconds)
    }
}
