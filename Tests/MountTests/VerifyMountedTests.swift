import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `vaultfs verify` of a vault that is mounted and being written.
    @Suite struct VerifyingMounted {
        private func verify(_ vault: VaultUnderTest) throws -> CommandResult {
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
        }

        @Test("what programs change meanwhile is no damage; what is damaged is found")
        func busy() throws {
            let (vault, _) = try Integrity.prepared()
            try vault.tamper(["flip_record", "other", "4", "100"])
            try vault.mount()
            let program = "\(Products.tests)/Programs/busy_tree.py"
            let writers = try (0..<3).map {
                try Command([Products.python, program, "\(vault.mountpoint)/busy\($0)", "\($0)"]).start()
            }
            defer {
                for writer in writers {
                    writer.kill(SIGKILL)
                    _ = writer.wait(timeout: .seconds(20))
                }
            }
            try poll("the trees") {
                (0..<3).allSatisfy { FileManager.default.fileExists(atPath: "\(vault.mountpoint)/busy\($0)") }
            }
            for _ in 0..<4 {
                let result = try verify(vault)
                #expect(result.exitCode == Failure.damageFound.rawValue, "\(result)")
                let damage = result.output.split(separator: "\n").filter { !$0.hasPrefix("busy: ") }.dropLast()
                #expect(damage == ["damaged: other: at byte 16384: chunk 4: tag does not verify"], "\(result)")
                #expect(writers.allSatisfy { $0.errors.isEmpty })
            }
        }

        @Test("unsealed files and the journal are a daemon's work")
        func quiet() throws {
            let vault = try VaultUnderTest()
            try vault.mount()
            try vault.account.run(["sh", "-c", "head -c 50000 /dev/urandom >\(vault.mountpoint)/f"]).succeeded()
            let result = try verify(vault)
            #expect(result.exitCode == 0 && result.output.split(separator: "\n").count == 1, "\(result)")
        }
    }
}
