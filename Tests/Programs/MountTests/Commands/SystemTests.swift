import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Mounts made by the system: mount(8), fstab(5), a service manager.
    @Suite struct System {
        @Test("mount -t fuse.vaultfs and fstab", .enabled(if: Products.isRoot, "takes root"))
        func fstab() throws {
            let vault = try VaultUnderTest()
            // In its own namespace mount(8) finds the program at an installed one's path.
            try vault.account.run(
                [
                    "unshare", "--mount", "--propagation", "private", "timeout", "50", "bash",
                    "\(vault.account.support)/Programs/machines/fstab.sh", vault.account.binary, vault.vault,
                    vault.mountpoint,
                    vault.passfile, vault.plain,
                ], environment: vault.environment
            ).succeeded()
            for _ in 1...4 { Products.countMount() }
        }

        @Test(
            "an automount point, if the kernel has autofs: a lookup below it finds the vault",
            .enabled(if: Products.isRoot, "takes root"))
        func automount() throws {
            guard try String(contentsOfFile: "/proc/filesystems", encoding: .utf8).contains("\tautofs\n") else {
                return
            }
            let vault = try VaultUnderTest().mounted()
            try Data("content".utf8).write(to: URL(filePath: "\(vault.mountpoint)/file"))
            try vault.unmount()
            // setsid makes the program the leader of a process group. The mount ends with the namespace, and the daemon
            // with its mount.
            let outcome = try vault.account.run(
                [
                    "unshare", "--mount", "--propagation", "private", "timeout", "50", "setsid", "--wait",
                    Products.python,
                    "\(vault.account.support)/Programs/machines/automount.py", vault.mountpoint, "file",
                    vault.account.binary,
                    "mount", "--quiet", "--passfile", vault.passfile, "--lock-file", "\(vault.plain)/lock", vault.vault,
                    vault.mountpoint,
                ], environment: vault.environment
            ).succeeded()
            #expect(outcome.output == "content")
            Products.countMount()
        }

        @Test(
            "the package, installed, used by hand and from fstab, by root and by a user, and purged",
            .enabled(if: Products.isRoot, "takes root"))
        func package() throws {
            let directory = try TemporaryDirectory()
            let built = try Command(
                [
                    "\(Products.root)/scripts/package", "--binary", Products.binary, "--output", directory.path,
                ], environment: ["DPKG_DEB_COMPRESSOR_TYPE": "none"], timeout: .seconds(180)
            ).run().succeeded()
            let package = try #require(built.output.split(separator: "\n").last.map(String.init))
            try Command(["mkdir", directory.appending("scratch")]).run().succeeded()
            try Command(
                ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]
                    + [
                        "timeout", "-k", "5", "200", "bash", "\(Products.support)/Programs/machines/package_here.sh",
                        package,
                    ]
                    + [directory.appending("scratch")], timeout: .seconds(220)
            ).run().succeeded()
            for _ in 1...5 { Products.countMount() }
        }

        @Test("a service manager is notified when the mount is ready", arguments: Settings.accounts)
        func readiness(setting: Setting) throws {
            let vault = try setting.vault()
            try vault.account.run(
                [
                    Products.python, "\(vault.account.support)/Programs/desktop/notify.py", vault.mountpoint,
                    vault.account.binary, "mount", "--foreground", "--passfile", vault.passfile,
                    "--lock-file", "\(vault.plain)/lock", vault.vault, vault.mountpoint,
                ], environment: vault.environment
            ).succeeded()
            for _ in 1...2 { Products.countMount() }
        }
    }
}
