import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Written data lost with the log, which must be reported to everybody concerned.
    @Suite struct LogLosses {
        /// Overwrites a chunk of a file, and then damages its entry in the log or removes the log.
        private static let script = """
            import os, sys
            mountpoint, vault, damage = sys.argv[1:]
            file = os.open(mountpoint + "/file", os.O_RDWR)
            os.pwrite(file, b"n" * 4096, 8192)
            os.fsync(file)
            # The daemon has the last entries in memory, until a later one follows a sync.
            os.pwrite(file, b"m" * 4096, 0)
            log = vault + "/vaultfs.log"
            if damage == "byte":
                with open(log, "r+b") as opened:
                    opened.seek(4096 + 200)
                    byte = opened.read(1)[0]
                    opened.seek(4096 + 200)
                    opened.write(bytes([byte ^ 1]))
            else:
                os.unlink(log)
            """

        private func vault() throws -> VaultUnderTest {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "seq 10000 >$1/file", "sh", vault.mountpoint]).succeeded()
            try vault.vaultfs(["sync", vault.mountpoint]).succeeded()
            return vault
        }

        private func change(_ vault: VaultUnderTest, _ damage: String) throws {
            try vault.account.run([Products.python, "-c", Self.script, vault.mountpoint, vault.vault, damage])
                .succeeded()
        }

        @Test(
            "an entry that cannot be read back is told by sync, status, an event, lock, unmount, verify and the next mount"
        )
        func damagedEntry() throws {
            let vault = try vault()
            let events = try vault.start(["events", "--json", vault.mountpoint])
            defer { events.kill(SIGKILL) }
            try poll("the first event") { !events.output.isEmpty }
            try change(vault, "byte")
            let lost = Failure.notDurable.rawValue
            #expect(try vault.vaultfs(["sync", vault.mountpoint]).exitCode == lost)
            let problems = try #require(try vault.status()["problems"] as? [String])
            #expect(problems.contains { $0.hasPrefix("damaged: file: chunk 2 is lost") }, "\(problems)")
            try poll("the event") { events.output.contains("integrity-error") }
            let locked = try vault.vaultfs(["lock", vault.mountpoint])
            #expect(locked.exitCode == lost && locked.output.hasPrefix("\(vault.mountpoint): locked; "), "\(locked)")
            #expect(locked.errors.hasPrefix("vaultfs: \(vault.mountpoint): locked and purged, but not durable: "))
            try vault.vaultfs(["unlock", vault.mountpoint]).succeeded()
            let unmounted = try vault.vaultfs(["unmount", vault.mountpoint])
            #expect(unmounted.exitCode == lost && unmounted.errors.hasPrefix("vaultfs: "), "\(unmounted)")
            #expect(try vault.account.run(["cat", "\(vault.vault)/vaultfs.lock"]).output != "\n")
            let verify = ["verify", vault.vault, "--passfile", vault.passfile]
            #expect(try vault.vaultfs(verify).exitCode == Failure.damageFound.rawValue)
            try vault.mount()
            let read = try vault.account.run([
                "dd", "if=\(vault.mountpoint)/file", "bs=4096", "skip=2", "count=1", "of=/dev/null",
            ])
            #expect(read.errors.contains("Input/output error"))
            try vault.unmount()
            #expect(try vault.account.run(["cat", "\(vault.vault)/vaultfs.lock"]).output == "\n")
        }

        @Test("a log that is removed under a mount is made anew, and nothing is lost")
        func removedLog() throws {
            let vault = try vault()
            try change(vault, "removed")
            try change(vault, "removed")
            try vault.vaultfs(["sync", vault.mountpoint]).succeeded()
            #expect(try vault.status()["problems"] == nil)
            try vault.unmount()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            try vault.mount()
            let read = try vault.account.run([
                "sh", "-c", "tail -c +8193 $1/file | head -c 4096", "sh", vault.mountpoint,
            ])
            #expect(read.output == String(repeating: "n", count: 4096))
            try vault.unmount()
        }
    }
}
