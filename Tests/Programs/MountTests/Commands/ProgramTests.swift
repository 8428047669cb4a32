import TestSupport
import Testing

extension PlainMountTests {
    /// Real programs. Each is a script that gets the mount and a scratch directory beside it, and succeeds or fails.
    @Suite struct Programs {
        static let scripts = [
            "sqlite.sh", "git.sh", "archive.sh", "video.sh", "compiler.sh", "fio.sh", "locks.sh",
        ]

        @Test("programs", arguments: [Setting.rootOnExt4, .userOnTmpfs].filter(Settings.available.contains), scripts)
        func program(setting: Setting, script: String) throws {
            let vault = try setting.vault().mounted()
            try vault.account.run(
                ["bash", "\(vault.account.support)/Programs/applications/\(script)", vault.mountpoint, vault.plain],
                timeout: .seconds(240)
            ).succeeded()
            try vault.unmount()
            try vault.read(["--require-sealed", "--xattrs"]).succeeded()
        }

        @Test("a buffered read after an asynchronous O_DIRECT write", arguments: [Setting.rootOnExt4])
        func asynchronousDirectWrites(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try vault.account.program("applications/aio_direct.py", [vault.mountpoint, "60"], timeout: .seconds(60))
                .succeeded()
            try vault.unmount()
        }
    }
}
