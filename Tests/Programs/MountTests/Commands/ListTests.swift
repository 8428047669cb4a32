import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// `vaultfs list`, `forget`, and labels instead of paths.
    @Suite struct Lists {
        private struct Row: Decodable, Equatable {
            let label, path, state: String
            let mountedAt: String?
            let options: [String]?
        }

        private func rows(_ vault: VaultUnderTest) throws -> [Row] {
            let output = try vault.vaultfs(["list", "--json"]).succeeded().output
            return try JSONDecoder().decode([Row].self, from: Data(output.utf8))
        }

        private func list(_ vault: VaultUnderTest) -> String {
            "\(vault.environment["XDG_CONFIG_HOME"] ?? "")/vaultfs/vaults.json"
        }

        @Test("a label mounts as the last time, and names the vault in every command", arguments: Settings.accounts)
        func label(setting: Setting) throws {
            let vault = try setting.vault()
            let lock = "\(vault.plain)/lock"
            try vault.mount([
                "--label", "Taxes", "--idle-lock", "5m", "-o", "nosuid,passfile=\(vault.passfile),lock_file=\(lock)",
            ])
            let path = vault.vault
            let options = ["-o", "nosuid", "--lock-file=\(lock)", "--idle-lock=300s"]
            #expect(
                try rows(vault) == [
                    Row(label: "Taxes", path: path, state: "unlocked", mountedAt: vault.mountpoint, options: options)
                ])
            for command in [["lock"], ["unlock"], ["status"], ["info"], ["slot", "list"]] {
                try vault.vaultfs(command + ["Taxes"]).succeeded()
            }
            try vault.vaultfs(["unmount", "Taxes"]).succeeded()
            try vault.awaitDaemonsEnd()
            #expect(try rows(vault).map(\.state) == ["unmounted"])
            try vault.vaultfs(["mount", "Taxes", "--passfile", vault.passfile, "-o", "nodev"]).succeeded()
            #expect(try rows(vault).map(\.options) == [options])
            let status = try vault.vaultfs(["status", vault.mountpoint, "--json"]).succeeded().output
            #expect(status.contains("\"idleSeconds\" : 300"), "\(status)")
            try vault.vaultfs(["unmount", "Taxes"]).succeeded()
            let bytes = try String(contentsOfFile: list(vault), encoding: .utf8)
            #expect(!bytes.contains("pass") && !bytes.contains(VaultUnderTest.passphrase), "\(bytes)")
            try vault.vaultfs(["forget", "Taxes"]).succeeded()
            expectFailure(try vault.vaultfs(["forget", "Taxes"]), .notAVault, naming: "'Taxes'")
            #expect(try rows(vault).isEmpty)
        }

        @Test("the desktop's keyring is asked again by the label alone, unless another source of the secret is given")
        func keyring() throws {
            let vault = try VaultUnderTest()
            let secret = Data(VaultUnderTest.passphrase.utf8).base64EncodedString()
            let answer = #"{"secret":{"kind":"passphrase","bytes":"\#(secret)"}}"#
            let program = "\(vault.plain)/vaultfs-keyring"
            try Data("#!/bin/sh\necho '\(answer)'\n".utf8).write(to: URL(fileURLWithPath: program))
            chmod(program, 0o755)
            let launcher = ["env", "PATH=\(vault.plain):/usr/bin:/bin"]
            try vault.tryMount(["--label", "Mine"], opening: ["--desktop-keyring"], launcher: launcher).succeeded()
            try vault.unmount()
            try vault.mounting(launcher + [vault.account.binary, "mount", "Mine"]).succeeded()
            try vault.unmount()
            try vault.mounting([vault.account.binary, "mount", "Mine", "--passfile", vault.passfile]).succeeded()
            #expect(try rows(vault).map(\.options) == [["--desktop-keyring"]])
            try vault.unmount()
        }

        @Test("a vault that has moved is found by its id, and one that is away is absent")
        func moved() throws {
            let vault = try VaultUnderTest().mounted(["--label", "here"])
            try vault.unmount()
            let moved = "\(vault.vault).moved"
            #expect(rename(vault.vault, moved) == 0)
            #expect(try rows(vault).map(\.state) == ["absent"])
            try vault.vaultfs(["mount", moved, "--passfile", vault.passfile]).succeeded()
            #expect(try rows(vault).map(\.path) == [moved])
            try vault.vaultfs(["unmount", "here"]).succeeded()
            #expect(rename(moved, vault.vault) == 0)
            // Another vault takes the path of a removed one, and its label, but not another one's label.
            let other = "\(vault.vault).other"
            let make = ["--passfile", vault.passfile, "--scrypt-logn", "10", "--label", "other"]
            for _ in 0..<2 {
                try vault.vaultfs(["init", other] + make).succeeded()
                #expect(try rows(vault).map(\.label) == ["here", "other"])
                try Command(["rm", "-r", other]).run().succeeded()
            }
            expectFailure(
                try vault.vaultfs(["init", "\(vault.vault).third"] + make), .usage, naming: "that of \(other)")
        }

        @Test("a list of any bytes: list fails with its path, a mount only warns, and the file stays")
        func bytes() throws {
            let vault = try VaultUnderTest()
            let directory = URL(fileURLWithPath: list(vault)).deletingLastPathComponent()
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
            for text in [
                "", "{", "[]", "{\"version\":2,\"vaults\":[]}", "\u{0}\u{FFFD}", "{\"version\":1,\"vaults\":[{}]}",
            ] {
                try Data(text.utf8).write(to: URL(fileURLWithPath: list(vault)))
                expectFailure(try vault.vaultfs(["list"]), .failure, naming: list(vault))
            }
            let mounted = try vault.vaultfs(
                ["mount", vault.vault, vault.mountpoint, "--passfile", vault.passfile])
            #expect(mounted.exitCode == 0 && mounted.errors.contains("the list of your vaults was not changed"))
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
            #expect(try Data(contentsOf: URL(fileURLWithPath: list(vault))).count > 10)
        }
    }
}
