import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// The redo log as users see it: `sync`, `status`, `init --log-size`.
    @Suite struct TheLog {
        private func log(_ vault: VaultUnderTest) throws -> [String: Int] {
            let statistics = try #require(try vault.status()["statistics"] as? [String: Any])
            return try #require(statistics["log"] as? [String: Any]).compactMapValues { $0 as? Int }
        }

        /// Returns the number of checkpoints for each reason.
        private func checkpoints(_ vault: VaultUnderTest) throws -> [String: Int] {
            let statistics = try #require(try vault.status()["statistics"] as? [String: Any])
            let log = try #require(statistics["log"] as? [String: Any])
            return try #require(log["checkpoints"] as? [String: Int])
        }

        /// Overwrites a file with write(2), and another through a mapping that stays.
        private static let changes = """
            import mmap, os, sys
            os.chdir(sys.argv[1])
            for name, seed in ("written", 1), ("mapped", 2), ("grown", 3):
                open(name, "wb").write(bytes([seed]) * 100000)
            os.sync()
            with open("written", "r+b") as file:
                for place in 5000, 60000:
                    file.seek(place)
                    file.write(b"new" * 2000)
            with open("grown", "ab") as file: file.write(b"more")
            with open("mapped", "r+b") as file:
                view = mmap.mmap(file.fileno(), 0)
                view[4000:9000] = b"m" * 5000
                print("made", flush=True)
                sys.stdin.read()
            """

        @Test("sync leaves nothing in the log, also of dirty pages: a copy of the files alone has everything")
        func synchronized() throws {
            let vault = try VaultUnderTest().mounted()
            let program = try Command([Products.python, "-c", Self.changes, vault.mountpoint]).start()
            defer { program.kill(SIGKILL) }
            try poll("the changes") { program.output.contains("made") }
            let result = try vault.vaultfs(["sync", vault.mountpoint]).succeeded()
            #expect(result.output == "\(vault.mountpoint): synchronized\n")
            #expect(try log(vault)["used"] == 0)
            let copy = "\(vault.plain)/copy"
            let script = "mkdir $2; cp -a $1/. $2; rm $2/vaultfs.log $2/vaultfs.lock"
            try Command(["sh", "-ec", script, "sh", vault.vault, copy]).run().succeeded()
            let plain = "\(vault.plain)/plain"
            try vault.vaultfs(["export", copy, plain, "--passfile", vault.passfile]).succeeded()
            try Command(["diff", "-r", vault.mountpoint, plain]).run().succeeded()
            // Synchronize while locked too, and with JSON.
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            let json = try vault.vaultfs(["sync", vault.mountpoint, "--json"]).succeeded()
            #expect(try json.fields()["synchronized"] as? Bool == true, "\(json)")
            try vault.vaultfs(["unlock", vault.mountpoint]).succeeded()
            program.kill(SIGKILL)
            _ = program.wait(timeout: .seconds(20))
            try vault.unmount()
        }

        @Test("init --log-size sets the size of the log, which status shows and no write exceeds")
        func size() throws {
            let vault = try VaultUnderTest(arguments: ["--log-size", "2M"]).mounted()
            let script = """
                head -c 8000000 /dev/urandom >plain; cp plain $1/f; head -c 8000000 /dev/urandom >plain
                dd if=plain of=$1/f conv=notrunc bs=64K status=none; cmp plain $1/f
                """
            try vault.account.run(["sh", "-ec", "cd $2; \(script)", "sh", vault.mountpoint, vault.plain]).succeeded()
            let found = try log(vault)
            #expect(found["size"] == 2 << 20)
            // 8 MB do not fit a log of 2 MiB. A quick durability thread empties it before it is full.
            let made = try checkpoints(vault)
            #expect(made["full-log", default: 0] + made["due", default: 0] > 0)
            #expect(found["used", default: 0] <= 2 << 20)
            #expect(found["indexMemory", default: 1 << 20] <= (2 << 20) / 40)
            try vault.remount()
            #expect(try log(vault) == ["size": 2 << 20, "used": 0, "indexMemory": 0])
            try vault.unmount()
            for size in ["1023K", "2G", "x"] {
                let result = try vault.vaultfs(["init", "\(vault.plain)/new", "--log-size", size])
                #expect(result.exitCode == Failure.usage.rawValue, "\(result)")
            }
        }
    }
}
