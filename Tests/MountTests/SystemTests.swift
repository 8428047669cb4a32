import Foundation
import TestSupport
import Testing

extension MountTests {
    /// How the system mounts: mount(8), fstab(5), a service manager.
    @Suite struct System {
        @Test("mount -t fuse.vaultfs and fstab", .enabled(if: Products.isRoot, "takes root"))
        func fstab() throws {
            let vault = try VaultUnderTest()
            // In a namespace of its own it finds the program where an installed one is.
            try vault.account.run(
                [
                    "unshare", "--mount", "--propagation", "private", "timeout", "50", "bash",
                    "\(vault.account.tests)/Programs/fstab.sh", vault.account.binary, vault.vault, vault.mountpoint,
                    vault.passfile, vault.plain,
                ], environment: vault.environment
            ).succeeded()
            for _ in 1...4 { Products.countMount() }
        }

        @Test(
            "the package, installed, used by hand and from fstab, by root and by a user, and purged",
            .enabled(if: Products.isRoot, "takes root"))
        func package() throws {
            let directory = try TemporaryDirectory()
            let built = try Command(
                [
                    "\(Products.tests)/../scripts/package", "--binary", Products.binary, "--output", directory.path,
                ], environment: ["DPKG_DEB_COMPRESSOR_TYPE": "none"]
            ).run().succeeded()
            let package = try #require(built.output.split(separator: "\n").last.map(String.init))
            try Command(["mkdir", directory.appending("scratch")]).run().succeeded()
            try Command(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
                    + ["timeout", "-k", "5", "100", "bash", "\(Products.tests)/Programs/package_here.sh", package]
                    + [directory.appending("scratch")], timeout: .seconds(120)
            ).run().succeeded()
            for _ in 1...5 { Products.countMount() }
        }

        @Test("a service manager is told when the mount is ready", arguments: Settings.accounts)
        func readiness(setting: Setting) throws {
            let vault = try setting.vault()
            try vault.account.run(
                [
                    Products.python, "\(vault.account.tests)/Programs/notify.py", vault.mountpoint,
                    vault.account.binary, "mount", "--foreground", "--passfile", vault.passfile,
                    "--lock-file", "\(vault.plain)/lock", vault.vault, vault.mountpoint,
                ], environment: vault.environment
            ).succeeded()
            for _ in 1...2 { Products.countMount() }
        }
    }
}
