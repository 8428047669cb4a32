import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `vaultfs rekey`, with the result as seen by the mount and the independent reader.
    @Suite struct Rekeying {
        /// Returns the size of the largest temporary file in the vault's root.
        private static func temporarySize(_ vault: String) throws -> Int {
            try FileManager.default.contentsOfDirectory(atPath: vault).filter { $0.hasPrefix("vaultfs.tmp.") }.map {
                var status = stat()
                return stat("\(vault)/\($0)", &status) == 0 ? Int(status.st_size) : 0
            }.max() ?? 0
        }

        /// Kills the rekey with the large file half done. Starts over if the rekey was too fast.
        private static func runKilledInTheMiddle(_ rekey: [String], _ vault: VaultUnderTest) throws {
            for _ in 0..<20 {
                let running = try vault.account.command([vault.account.binary] + rekey).start()
                try poll("the large file to be half done", timeout: .seconds(60)) {
                    try running.wait(timeout: .zero) != nil || temporarySize(vault.vault) > 1 << 20
                }
                running.kill(SIGKILL)
                let code = running.wait(timeout: .seconds(20))
                if try code == 128 + SIGKILL && temporarySize(vault.vault) > 1 << 20 { return }
                guard code == 0 || code == 128 + SIGKILL else { throw TestFailure("\(code ?? -1): \(running.errors)") }
            }
            throw TestFailure("never half done")
        }

        private static func expectTree(_ vault: VaultUnderTest, _ listing: String, _ what: String) throws {
            let byReader = try vault.read(["--require-sealed", "--xattrs"]).succeeded()
            expectSameLines(PlainMountTests.Readers.withoutClass(byReader.output) + "\n", as: listing, what)
        }

        @Test("killed halfway, mounted and written, the rekey continues to the end", arguments: Settings.accounts)
        func killed(setting: Setting) throws {
            // The file has only a few chunks, because the independent reader is slow.
            let vault = try setting.vault(arguments: ["--chunk-size", "65536"])
            let secret = ["--passfile", vault.passfile]
            try vault.vaultfs(
                ["slot", "add", vault.vault, "--new-passfile", "/dev/fd/0", "--scrypt-logn", "10"] + secret,
                input: "other"
            ).succeeded()
            try vault.mount()
            try vault.account.program("model/workload.py", [vault.mountpoint, "100"]).succeeded()
            try vault.account.run(["dd", "if=/dev/urandom", "of=\(vault.mountpoint)/large", "bs=1M", "count=64"])
                .succeeded()
            let before = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded().output
            let rekey = ["rekey", vault.vault, "--yes"] + secret
            let refused = try vault.vaultfs(rekey)
            #expect(refused.exitCode == 5 && refused.errors.contains("unmount it first"), "\(refused)")
            try vault.unmount()

            try Self.runKilledInTheMiddle(rekey, vault)
            #expect(try vault.vaultfs(["info", vault.vault]).succeeded().output.contains("unfinished"))
            try Self.expectTree(vault, before, "the reader, in the middle")
            expectFailure(
                try vault.vaultfs(["verify", vault.vault, "--passfile", "/dev/fd/0"], input: "other"), .wrongSecret)

            try vault.mount()
            let status = try vault.vaultfs(["status", vault.mountpoint])
            #expect(status.output.contains("a rekey is unfinished"))
            #expect(status.exitCode == Failure.problems.rawValue && status.errors.isEmpty)
            // A dead mount of another test counts before problems.
            let codes = [Failure.problems, .mountpoint].map(\.rawValue)
            #expect(try codes.contains(vault.vaultfs(["status"]).exitCode))
            let meanwhile = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded()
                .output
            expectSameLines(meanwhile, as: before, "the mount, in the middle")
            let change =
                "cd \(vault.mountpoint) && echo more >>large && mkdir new && echo made >new/file && mv new/file new/name"
            try vault.account.run(["sh", "-c", change]).succeeded()
            let written = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded().output
            try vault.unmount()

            let end = try vault.vaultfs(rekey + ["--json"]).succeeded()
            #expect(end.output.contains("\"finished\" : true"), "\(end)")
            try Self.expectTree(vault, written, "the reader, at the end")
            #expect(try !vault.vaultfs(["info", vault.vault]).succeeded().output.contains("unfinished"))
            try vault.mount()
            let after = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded().output
            expectSameLines(after, as: written, "the mount, at the end")
        }

        @Test(
            "exit code 11: a file that denies access to its owner stays under the old key", arguments: Settings.accounts
        )
        func closed(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try vault.account.run([
                "sh", "-c", "echo text >\(vault.mountpoint)/closed; chmod 0 \(vault.mountpoint)/closed",
            ])
            .succeeded()
            try vault.unmount()
            let rekey = ["rekey", vault.vault, "--yes", "--passfile", vault.passfile]
            if setting.isRoot {
                try vault.vaultfs(rekey).succeeded()
                return
            }
            let result = try vault.vaultfs(rekey)
            #expect(result.exitCode == 11, "\(result)")
            #expect(result.errors.contains("closed: stays under the old key: Permission denied"), "\(result)")
            try vault.account.run(["chmod", "-R", "u+rw", vault.vault]).succeeded()
            try vault.vaultfs(rekey).succeeded()
        }
    }
}
