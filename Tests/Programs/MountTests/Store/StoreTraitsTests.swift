import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A store's abilities, as the commands show them.
    @Suite struct StoreAbilities {
        @Test(
            "the leftovers of a killed probe are no damage, the next mount removes them, and the status shows the store; 'info' only reads"
        )
        func leftovers() throws {
            let vault = try VaultUnderTest()
            let probe = vault.vault + "/vaultfs.tmp.probe-1"
            try Command(["mkdir", "-p", probe + "/directory"]).run().succeeded()
            try Command(["touch", probe + "/file", probe + "/directory/file"]).run().succeeded()
            let verified = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            #expect(!verified.output.contains("probe") && !verified.errors.contains("probe"))
            try vault.mount()
            #expect(!FileManager.default.fileExists(atPath: probe))
            #expect(try (vault.status()["store"] as? [String: Any])?["overwritesInPlace"] as? Bool == true)
            for command in [["status", "--verbose", vault.mountpoint], ["info", vault.vault]] {
                let output = try vault.vaultfs(command).succeeded().output
                #expect(output.contains("store lacks") && !output.contains("unknown"), "\(output)")
            }
            try vault.unmount()
            #expect(try !FileManager.default.contentsOfDirectory(atPath: vault.vault).contains { $0.contains("probe") })
            var (before, after) = (stat(), stat())
            #expect(stat(vault.vault, &before) == 0)
            #expect(
                try vault.vaultfs(["info", vault.vault]).succeeded().output.contains(
                    "store lacks               unknown without"))
            #expect(stat(vault.vault, &after) == 0)
            #expect(before.st_ctim.tv_sec == after.st_ctim.tv_sec && before.st_ctim.tv_nsec == after.st_ctim.tv_nsec)
        }

        @Test("a vault on a store with short names is made with a warning, which has the longest name (EncFS)")
        func shortNames() throws {
            let directory = try TemporaryDirectory()
            let (cipher, plain) = (directory.appending("cipher"), directory.appending("plain"))
            try Command(["mkdir", cipher, plain]).run().succeeded()
            let secret = try directory.write("secret", "correct horse", mode: 0o600)
            try Command(["encfs", "--standard", "--extpass=cat '\(secret)'", cipher, plain]).run().succeeded()
            defer { _ = try? Command(["fusermount3", "-u", plain]).run() }
            let made = try Command(
                [Products.binary, "init", plain + "/vault", "--passfile", secret, "--scrypt-logn", "10"]
            ).run().succeeded()
            #expect(made.errors.contains("plain/vault: names of over 112 bytes fail here"))
            #expect(
                try Command([Products.binary, "info", plain + "/vault"]).run().output.contains("names over 112 bytes"))
        }

        @Test(
            "an object store is warned of, as it uploads later, or refused if it cannot overwrite (rclone)",
            arguments: ["writes", "off"])
        func objectStore(cacheMode: String) throws {
            let directory = try TemporaryDirectory()
            let (remote, plain) = (directory.appending("remote"), directory.appending("plain"))
            try Command(["mkdir", remote, plain]).run().succeeded()
            let configuration = try directory.write("rclone.conf", "")
            let secret = try directory.write("secret", "correct horse", mode: 0o600)
            let options = ["--passfile", secret, "--scrypt-logn", "10"]
            try Command([Products.binary, "init", remote + "/local"] + options).run().succeeded()
            let rclone = try Command([
                "rclone", "mount", "--config", configuration, "--cache-dir", directory.appending("cache"),
                "--vfs-cache-mode", cacheMode, remote, plain,
            ]).start()
            defer {
                _ = try? Command(["fusermount3", "-u", plain]).run()
                _ = rclone.wait(timeout: .seconds(20))
            }
            try poll("rclone: \(rclone.errors)") { try Command(["mountpoint", "-q", plain]).run().exitCode == 0 }
            let made = try Command([Products.binary, "init", plain + "/vault"] + options).run()
            if cacheMode == "off" {
                let others = try [
                    ["mount", plain + "/local", directory.appending("mount")],
                    ["import", secret, plain + "/local"],
                ].map { try Command([Products.binary] + $0 + ["--passfile", secret]).run() }
                for result in [made] + others {
                    #expect(result.exitCode == 1, "\(result)")
                    #expect(result.errors.contains("cannot overwrite a file in place"), "\(result)")
                }
            } else {
                #expect(made.exitCode == 0 && made.errors.contains("warning: "), "\(made)")
                #expect(made.errors.contains("which uploads later"), "\(made)")
            }
            #expect(made.errors.contains("'rclone sync'"), "\(made)")
        }
    }
}
