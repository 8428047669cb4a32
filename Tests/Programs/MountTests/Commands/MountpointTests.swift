import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Mountpoints made by the mount.
    @Suite struct Mountpoints {
        @Test("a missing one is made, for the user alone, and goes with the mount", arguments: Settings.accounts)
        func made(setting: Setting) throws {
            let vault = try setting.vault()
            let missing = "\(vault.plain)/made"
            let mount = ["mount", vault.vault, missing]
            // The mountpoint is made only once everything else is right.
            expectFailure(try vault.vaultfs(mount + ["--passfile", "/dev/fd/0"], input: "wrong"), .wrongSecret)
            #expect(!FileManager.default.fileExists(atPath: missing))
            try vault.vaultfs(mount + ["--passfile", vault.passfile]).succeeded()
            try vault.account.run(["sh", "-c", "echo content > \(missing)/file"]).succeeded()
            try vault.vaultfs(["unmount", missing]).succeeded()
            #expect(!FileManager.default.fileExists(atPath: missing))
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

        /// Programs to exchange the mountpoint `$1` for `$2`, an empty directory.
        private static let exchanges = [
            "rmdir $1; ln -s $2 $1", "rmdir $1; mkdir $1", "mv $1 $1.old; mv $2 $1",
            "mv ${1%/*} ${1%/*}.old; mkdir ${1%/*}; mv $2 $1", "mv ${1%/*} ${1%/*}.old; ln -s ${2%/*} ${1%/*}",
        ]

        @Test(
            "one that is exchanged while the secret is asked for is not mounted on, nor what is there instead",
            arguments: Settings.accounts, exchanges)
        func exchanged(setting: Setting, exchange: String) throws {
            let vault = try setting.vault()
            let (parent, other) = ("\(vault.plain)/parent", "\(vault.plain)/other")
            let (mountpoint, victim) = ("\(parent)/mount", "\(other)/mount")
            for isMissing in [false, true] {
                try vault.account.run(["rm", "-rf", "\(parent).old"]).succeeded()
                try vault.account.run(["mkdir", "-p", isMissing ? parent : mountpoint, victim]).succeeded()
                // The daemon asks this provider for the secret after the check.
                let secret = Data(VaultUnderTest.passphrase.utf8).base64EncodedString()
                let answer = #"{"secret":{"kind":"passphrase","bytes":"\#(secret)"}}"#
                let script = "\(vault.plain)/exchange"
                try Data("set -e; \(exchange); echo '\(answer)'\n".utf8).write(to: URL(fileURLWithPath: script))
                let made = isMissing ? "mkdir \(mountpoint); " : ""
                let result = try vault.vaultfs([
                    "mount", vault.vault, mountpoint,
                    "--provider", "\(made)sh \(script) \(mountpoint) \(victim)",
                ])
                expectFailure(result, .mountpoint)
                #expect(try !vault.account.run(["cat", "/proc/self/mounts"]).output.contains(" \(vault.plain)/"))
                try vault.account.run(["rm", "-rf", parent, other, "\(parent).old", script]).succeeded()
            }
        }

        @Test("root's mount is unmounted at its end only if it is still at its path", .enabled(if: Products.isRoot))
        func moved() throws {
            let vault = try VaultUnderTest()
            let (parent, other) = ("\(vault.plain)/parent", "\(vault.plain)/other")
            try Command(["mkdir", "-p", "\(parent)/mount", "\(other)/mount"]).run().succeeded()
            try Command(["mount", "-t", "tmpfs", "none", "\(other)/mount"]).run().succeeded()
            defer { for path in ["\(other)/mount", "\(parent).old/mount"] { umount2(path, 2) } }
            let daemon = try vault.start(["mount", "-f", vault.vault, "\(parent)/mount", "--passfile", vault.passfile])
            defer { daemon.kill(SIGKILL) }
            try poll("the mount") { try vault.vaultfs(["status", "\(parent)/mount"]).exitCode == 0 }
            Products.countMount()
            try Command(["mv", parent, "\(parent).old"]).run().succeeded()
            try Command(["ln", "-s", other, parent]).run().succeeded()
            daemon.kill(SIGTERM)
            #expect(daemon.wait(timeout: .seconds(20)) == 0)
            #expect(try Command(["cat", "/proc/self/mounts"]).run().output.contains(" \(other)/mount tmpfs "))
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
                // The vault is on the home directory's disk. Otherwise its mountpoint would be in the home directory.
                let made = try vault.account.run(
                    [vault.account.binary, "init", path, "--keyfile", keyfile],
                    environment: vault.environment.merging(["HOME": vault.plain]) { _, new in new }
                ).succeeded().output
                let command = try #require(made.split(separator: "\n").last { $0.hasPrefix("  vaultfs mount ") })
                try vault.account.run(
                    ["sh", "-c", "vaultfs() { \"$BINARY\" \"$@\"; }\n\(command)"],
                    environment: vault.environment.merging(["BINARY": vault.account.binary]) { _, new in new }
                ).succeeded()
                Products.countMount()
                try vault.vaultfs(["unmount", "\(vault.plain)/\(mountpoint)"]).succeeded()
                // The next vault gets another name only if this directory exists.
                try vault.account.run(["mkdir", "\(vault.plain)/\(mountpoint)"]).succeeded()
            }
        }
    }
}
