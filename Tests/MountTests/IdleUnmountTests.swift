import TestSupport
import Testing

extension PlainMountTests {
    /// `mount --idle-unmount`
    @Suite(.timeLimit(.minutes(20))) struct IdleUnmounts {
        @Test("a mount that is not used ends; a working directory in it is a use", arguments: Settings.accounts)
        func idle(setting: Setting) throws {
            let vault = try setting.vault()
            try vault.mount(["--idle-unmount", "500ms"])
            let user = try vault.account.run(["sh", "-c", "cd \(vault.mountpoint) && sleep 2 && cat /proc/self/mounts"])
            #expect(user.output.contains(" \(vault.mountpoint) fuse.vaultfs "))
            try vault.awaitDaemonsEnd()
            #expect(try !vault.isMounted())
            // It has ended as after an unmount: the next mount finds nothing to complete.
            #expect(
                !(try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded().output)
                    .contains("unclean"))
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
