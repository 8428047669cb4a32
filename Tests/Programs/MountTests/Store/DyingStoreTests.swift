import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A mount's report at its end, true even if the store died under it (Tests/Support/Programs/store/store_dies.py).
    @Suite struct DyingStores {
        @Test(
            "unmount, sync, lock, SIGTERM, fusermount3 -u and the idle unmount say that the store died, or everything is there",
            .enabled(if: Products.isRoot, "takes root, for mounts of its own"),
            arguments: ["shut-down", "read-only", "server", "unmounted-server", "unmounted", "removed", "full"])
        func dies(kind: String) throws {
            let vault = try VaultUnderTest(initialise: false)
            try vault.account.run(
                [
                    "unshare", "--mount", "--propagation", "private", Products.python,
                    Products.program("store/store_dies.py"),
                    "--binary", vault.account.binary, "--directory", vault.plain, kind,
                ], environment: vault.environment, timeout: .seconds(120)
            ).succeeded()
        }

        @Test("a moved vault is unmounted with 0: its daemon says that everything is in place")
        func moved() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "echo text >$1/f; mv $2 $2.moved", "sh", vault.mountpoint, vault.vault])
                .succeeded()
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
            try vault.vaultfs(["verify", "\(vault.vault).moved", "--passfile", vault.passfile]).succeeded()
        }

        @Test("a daemon that is killed during the unmount has not said that everything is in place")
        func killed() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "echo text >$1/f", "sh", vault.mountpoint]).succeeded()
            let daemon = try #require(vault.daemon)
            kill(daemon, SIGSTOP)
            let unmount = try vault.start(["unmount", "--force", "--timeout", "1s", vault.mountpoint])
            #expect(unmount.wait(timeout: .seconds(20)) == Failure.notDurable.rawValue, "\(unmount.errors)")
            #expect(unmount.errors.contains("its daemon was killed"))
            try vault.awaitDaemonsEnd()
            try vault.mount()
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/f"]).output == "text\n")
            try vault.unmount()
        }
    }

    /// An old log, put back after a clean end (FileFormat: Log-12).
    @Suite struct OldLogs {
        private static let problem = "vaultfs.log has entries after a clean end"

        /// Makes a vault with an entry in its log, and a lock file that records a clean end.
        private func vault() throws -> VaultUnderTest {
            let vault = try VaultUnderTest().mounted()
            let script =
                "seq 5000 >$1/f; $2 sync $1 -q; printf x | dd of=$1/f bs=1 seek=10 conv=notrunc status=none; sync $1/f"
            try vault.account.run(
                ["sh", "-ec", script, "sh", vault.mountpoint, vault.account.binary], environment: vault.environment
            ).succeeded()
            try vault.killDaemon()
            try Data("\n".utf8).write(to: URL(fileURLWithPath: "\(vault.vault)/vaultfs.lock"))
            return vault
        }

        @Test("mount warns, and status names it", arguments: [[], ["-o", "ro"], ["--shared"]])
        func mounts(options: [String]) throws {
            let vault = try vault()
            let mounted = try vault.tryMount(options).succeeded()
            #expect(mounted.errors.hasPrefix("vaultfs: warning: \(Self.problem)"), "\(mounted)")
            #expect(mounted.errors.split(separator: "\n").count == 1, "\(mounted)")
            #expect((try vault.status()["problems"] as? [String])?.first?.hasPrefix(Self.problem) == true)
            // The unmount succeeds because all data acknowledged since is there.
            try vault.unmount()
        }

        @Test("verify and export name it")
        func others() throws {
            let vault = try vault()
            let verify = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
            #expect(
                verify.exitCode == Failure.damageFound.rawValue && verify.output.contains(Self.problem), "\(verify)")
            let export = try vault.vaultfs(["export", vault.vault, "\(vault.plain)/out", "--passfile", vault.passfile])
            #expect(
                export.exitCode == Failure.damageFound.rawValue && export.errors.contains(Self.problem), "\(export)")
        }
    }
}
