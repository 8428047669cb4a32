import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The daemon's memory after a lock with forget, which must be free of plaintext and keys.
    @Suite struct LockMemory {
        /// The kinds of data required in memory before the lock. Otherwise their absence afterwards would prove
        /// nothing.
        static let expected = [
            "class key", "link key", "name key", "file key", "mac key", "attribute key", "content", "name",
        ]

        @Test("no key and no plaintext is in memory after a lock", .enabled(if: Products.isRoot, "reads /proc/PID/mem"))
        func forgotten() throws {
            let vault = try VaultUnderTest()
            // The test turns memfd_secret(2) off, because such memory cannot be read like this.
            try vault.mount(
                ["--on-lock", "forget", "--lock-file", "\(vault.plain)/lock", "--cache-size", "2M"],
                launcher: [Products.python, Products.program("commands/without_call.py"), "memfd_secret"])
            let result = try vault.account.run(
                [
                    Products.python, Products.program("lock/lock_memory.py"), vault.account.binary, vault.vault,
                    vault.mountpoint, vault.passfile,
                ], environment: vault.environment, timeout: .seconds(120)
            ).succeeded()
            let lines = result.output.split(separator: "\n").map(String.init)
            for secret in Self.expected {
                let before = lines.filter { $0.hasPrefix("unlocked") && $0.contains(": \(secret): ") }
                #expect(before.count == 2, "\(secret)")
                #expect(before.allSatisfy { !$0.contains(": 0 of") }, "\(before)")
            }
            let after = lines.filter { $0.hasPrefix("locked") }
            #expect(after.count == 2 * 11)
            #expect(after.allSatisfy { $0.contains(": 0 of ") }, "\(after.joined(separator: "\n"))")
            try vault.unmount()
        }

        @Test("status shows the kind of memory that was available")
        func told() throws {
            let vault = try VaultUnderTest().mounted()
            let status = try vault.vaultfs(["status", vault.mountpoint, "--json"]).succeeded().fields()
            let memory = try #require(status["memory"] as? [String: Any])
            #expect(["memfd_secret", "mlock", "unlocked"].contains(memory["keys"] as? String))
            #expect(["mlock", "unlocked"].contains(memory["cache"] as? String))
            #expect(memory["notDumpable"] as? Bool == true)
            #expect(memory["coreDumpsOff"] as? Bool == true)
        }
    }
}
