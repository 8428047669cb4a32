import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// `vaultfs.lock` removed or replaced under a mount.
    @Suite struct LostVaults {
        private static let problem = "vaultfs.lock was removed, or another mount took it"

        private func events(of process: RunningProcess) -> [[String: Any]] {
            process.output.split(separator: "\n").compactMap {
                try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
            }.filter { $0["event"] as? String == "problem" }
        }

        private func vault() throws -> VaultUnderTest {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "echo content >\(vault.mountpoint)/file; sync \(vault.mountpoint)/file"])
                .succeeded()
            return vault
        }

        @Test("an idle mount notices it: status, metrics, an event, and the exit code of unmount")
        func idle() throws {
            let vault = try vault()
            let events = try vault.start(["events", vault.mountpoint, "--json"])
            defer { events.kill(SIGKILL) }
            try poll("the first event") { events.output.contains("\"state\"") }
            unlink("\(vault.vault)/vaultfs.lock")
            try poll("the event", timeout: .seconds(30)) { !self.events(of: events).isEmpty }
            #expect((try vault.status()["problems"] as? [String])?.first?.hasPrefix(Self.problem) == true)
            let metrics = try vault.vaultfs(["status", "--prometheus", vault.mountpoint]).succeeded().output
            #expect(metrics.contains("vaultfs_problems{mountpoint=\"\(vault.mountpoint)\"} 1\n"), "\(metrics)")
            let write = try vault.account.run(["sh", "-c", "echo more >>\(vault.mountpoint)/file"])
            #expect(write.errors.contains("Input/output error"), "\(write)")
            expectFailure(try vault.vaultfs(["unmount", vault.mountpoint]), .notDurable, naming: Self.problem)
            try vault.awaitDaemonsEnd()
            #expect(events.wait(timeout: .seconds(20)) == 0)
            #expect(self.events(of: events).map { $0["atEnd"] as? Bool } == [false, true])
            try vault.mount()
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/file"]).succeeded().output == "content\n")
            try vault.unmount()
        }

        @Test(
            "unmount notices it by itself",
            arguments: ["rm $1", "cp $1 $1.new; echo >>$1.new; mv $1.new $1", "echo >$1"])
        func unmount(change: String) throws {
            let vault = try vault()
            try vault.account.run(["sh", "-c", change, "sh", "\(vault.vault)/vaultfs.lock"]).succeeded()
            expectFailure(try vault.vaultfs(["unmount", vault.mountpoint]), .notDurable, naming: Self.problem)
            try vault.awaitDaemonsEnd()
            #expect(try !vault.isMounted())
        }
    }
}
