import TestSupport
import Testing

extension MountTests {
    /// Files that arrive in a locked vault (Manual/Locking.md, "An inbox"). The docstring of each program describes it.
    @Suite struct Inbox {
        @Test(
            "programs deliver into a locked inbox: scp, rsync, curl, maildrop, procmail, ffmpeg, a browser",
            arguments: Settings.accounts, LockLoad.policies)
        func programs(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram("lock/inbox.py", ["--policy", policy, "programs"])
        }

        @Test("no call and no race reads what has arrived", arguments: Settings.accounts, LockLoad.policies)
        func hostile(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram("lock/inbox.py", ["--policy", policy, "hostile"])
        }

        @Test(
            "after the last close neither content nor keys are in memory",
            .enabled(if: Products.isRoot, "reads /proc/PID/mem"))
        func memory() throws {
            let vault = try VaultUnderTest(initialise: false)
            // The test turns memfd_secret(2) off, because such memory cannot be read like this.
            let launcher = [Products.python, Products.program("commands/without_call.py"), "memfd_secret"]
            let program = [
                Products.python, Products.program("lock/inbox.py"), "--binary", vault.account.binary, "--directory",
                vault.plain, "--policy", "forget", "memory",
            ]
            try vault.account.run(launcher + program, environment: vault.environment, timeout: .seconds(120))
                .succeeded()
        }

        @Test(
            "killed while locked: nothing acknowledged is lost (the long form: inbox_crash.py --rounds 50)",
            arguments: [Setting.rootOnTmpfs, .userOnDisk].filter(Settings.available.contains), LockLoad.policies)
        func kills(setting: Setting, policy: String) throws {
            try setting.vault(initialise: false).mountProgram(
                "lock/inbox_crash.py", ["--policy", policy, "--rounds", "8"])
        }

        @Test("protect makes an inbox of directories, says what it does, and warns if it cannot be found")
        func protect() throws {
            let vault = try VaultUnderTest().mounted()
            let inbox = "\(vault.mountpoint)/in"
            try vault.account.run(["sh", "-ec", "mkdir -p $1/deep; touch $1/f $1/deep/g", "sh", inbox]).succeeded()
            let result = try vault.vaultfs(["protect", "-R", "inbox", inbox]).succeeded()
            #expect(result.output.contains("files that are made in it are of class unless-open"))
            #expect(result.errors.contains("while the vault is locked it is not found"), "\(result)")
            let shown = try vault.vaultfs(["protect", "-R", inbox]).succeeded().output
            #expect(
                shown == """
                    inbox  \(inbox)
                    inbox  \(inbox)/deep
                    complete  \(inbox)/deep/g
                    complete  \(inbox)/f

                    """)
            let file = try vault.vaultfs(["protect", "inbox", "\(inbox)/f"])
            #expect(file.exitCode == 1 && file.errors.contains("an inbox is a directory"), "\(file)")
            let quiet = try vault.vaultfs(["protect", "-q", "inbox", vault.mountpoint]).succeeded()
            #expect(quiet.output.isEmpty && quiet.errors.isEmpty, "\(quiet)")
            try vault.unmount()
        }
    }
}
