import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Slots of a mounted vault.
    @Suite struct Slots {
        @Test("the unlock of a mounted vault uses the current slots", arguments: Settings.accounts)
        func changedWhileMounted(setting: Setting) throws {
            let vault = try setting.vault()
            let (old, file) = (["--passfile", vault.passfile], "\(vault.mountpoint)/file")
            try vault.mount(["--on-lock", "forget", "--lock-file", "\(vault.plain)/device.lock"])
            try vault.account.run(["sh", "-c", "echo text >\(file)"]).succeeded()
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()

            try vault.vaultfs(
                ["slot", "add", vault.vault, "--new-passfile", "/dev/fd/0", "--scrypt-logn", "10"] + old, input: "new"
            ).succeeded()
            #expect(try vault.account.run(["cat", file]).exitCode != 0)
            try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", "/dev/fd/0"], input: "new").succeeded()
            #expect(try vault.account.run(["cat", file]).output == "text\n")

            try vault.vaultfs(["slot", "remove", vault.vault, "1", "--passfile", "/dev/fd/0"], input: "new").succeeded()
            #expect(try vault.account.run(["cat", file]).output == "text\n")
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            expectFailure(try vault.vaultfs(["unlock", vault.mountpoint] + old), .wrongSecret)
            // The daemon refuses the next try for a while, because the last secret was wrong.
            try poll("the unlock") {
                try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", "/dev/fd/0"], input: "new").exitCode == 0
            }
            #expect(try vault.account.run(["cat", file]).output == "text\n")
            try vault.unmount()
            expectFailure(try vault.tryMount(), .wrongSecret)
        }
    }
}
