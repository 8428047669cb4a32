import TestSupport
import Testing

extension PlainMountTests {
    /// `vaultfs mount --idle-unmount`.
    @Suite(.timeLimit(.minutes(60))) struct IdleUnmounts {
        @Test("a mount that is not used ends; a working directory in it is a use", arguments: Settings.accounts)
        func idle(setting: Setting) throws {
            let vault = try setting.vault().mounted(["--idle-unmount", "3s"])
            let script = "cd \(vault.mountpoint) && echo text >file && sleep 7 && cat /proc/self/mounts"
            let user = try vault.account.run(["sh", "-c", script])
            #expect(user.output.contains(" \(vault.mountpoint) fuse.vaultfs "))
            try vault.awaitDaemonsEnd()
            #expect(try !vault.isMounted())
            // The writer record shows a clean end.
            #expect(try vault.account.run(["cat", "\(vault.vault)/vaultfs.lock"]).output == "\n")
        }

        @Test(
            "a time of 0 is refused",
            arguments: [["--idle-unmount", "0"], ["-o", "idle_unmount=0"], ["-o", "idle_lock=0"]])
        func zero(options: [String]) throws {
            let vault = try VaultUnderTest()
            expectFailure(try vault.tryMount(options), .usage, naming: "0 would always")
        }
    }
}
