import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A mountpoint that the mount makes.
    @Suite struct Mountpoints {
        private func mode(_ path: String) throws -> Int {
            try #require(FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int)
        }

        @Test("a missing one is made, for the user alone, and stays", arguments: Settings.accounts)
        func made(setting: Setting) throws {
            let vault = try setting.vault()
            let missing = "\(vault.plain)/made"
            let mount = ["mount", vault.vault, missing]
            // Not before everything else is right.
            expectFailure(try vault.vaultfs(mount + ["--passphrase-fd", "0"], input: "wrong"), .wrongSecret)
            #expect(!FileManager.default.fileExists(atPath: missing))
            try vault.vaultfs(mount + ["--passfile", vault.passfile]).succeeded()
            Products.countMount()
            try vault.account.run(["sh", "-c", "echo content > \(missing)/file"]).succeeded()
            try vault.vaultfs(["unmount", missing]).succeeded()
            #expect(try mode(missing) == 0o700)
            #expect(try vault.account.run(["ls", "-A", missing]).output.isEmpty)
        }

        @Test("one that was made goes if the mount fails")
        func failed() throws {
            let vault = try VaultUnderTest()
            let missing = "\(vault.plain)/made"
            try Command(["mkdir", "\(vault.vault)/vaultfs.log"]).run().succeeded()
            let result = try vault.vaultfs(["mount", vault.vault, missing, "--passfile", vault.passfile])
            #expect(result.exitCode == 3, "\(result)")
            #expect(!FileManager.default.fileExists(atPath: missing))
        }

        @Test("mount(8) makes none")
        func helper() throws {
            let vault = try VaultUnderTest()
            let missing = "\(vault.plain)/made"
            let result = try vault.vaultfs([vault.vault, missing, "-o", "passfile=\(vault.passfile)"])
            expectFailure(result, .mountpoint, naming: "mountpoint does not exist: \(missing)")
        }

        @Test("init names the command that mounts, ready to paste", arguments: Settings.accounts)
        func pasted(setting: Setting) throws {
            let vault = try setting.vault(initialise: false)
            let keyfile = "\(vault.plain)/it's a key"
            try vault.account.run(["sh", "-c", "umask 077; head -c 40 /dev/urandom > \"$1\"", "sh", keyfile])
                .succeeded()
            for (name, mountpoint) in [("a vault", "Private"), ("another", "another.open")] {
                let path = "\(vault.plain)/\(name)"
                let made = try vault.vaultfs(["init", path, "--keyfile", keyfile]).succeeded().output
                let command = try #require(made.split(separator: "\n").last { $0.hasPrefix("  vaultfs mount ") })
                try vault.account.run(
                    ["sh", "-c", "vaultfs() { \"$BINARY\" \"$@\"; }\n\(command)"],
                    environment: vault.environment.merging(["BINARY": vault.account.binary]) { _, new in new }
                ).succeeded()
                Products.countMount()
                try vault.vaultfs(["unmount", "\(vault.plain)/\(mountpoint)"]).succeeded()
            }
        }
    }
}
