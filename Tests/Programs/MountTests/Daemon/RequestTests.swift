import Foundation
import TestSupport
import Testing

extension MountTests {
    /// The kernel's requests to the daemon, and their cost.
    @Suite struct Requests {
        private func served(_ vault: VaultUnderTest) throws -> Int {
            let status = try vault.vaultfs(["status", vault.mountpoint, "--json"]).succeeded().fields()
            return try #require((status["requests"] as? [String: Any])?["served"] as? Int)
        }

        @Test("a write is one request: no query of capabilities before each", arguments: Settings.accounts)
        func writes(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let script = """
                import os, sys
                fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
                for i in range(1000): os.pwrite(fd, b"x" * 4096, i * 4096)
                """
            let before = try served(vault)
            try vault.account.run([Products.python, "-c", script, "\(vault.mountpoint)/f"]).succeeded()
            let count = try served(vault) - before
            #expect((1000..<1100).contains(count))
            try vault.unmount()
        }

        @Test("a locked vault keeps its set-id bits", arguments: Settings.accounts)
        func lockedSetID(setting: Setting) throws {
            let vault = try setting.vault().mounted(["-o", "allow_other"].filter { _ in setting.isRoot })
            try Command(["chmod", "777", vault.mountpoint]).run().succeeded()
            let writer = setting.isRoot ? try #require(Account.visitor) : vault.account
            // Opens the file and sets its bits before the lock, because later only an open descriptor could change it.
            let script = """
                import os, sys
                path, plain = sys.argv[1:]
                fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o777)
                os.write(fd, b"x" * 8192)
                os.fchmod(fd, 0o6777)
                print("ready", flush=True)
                open(plain + "/locked").close()
                for action in (lambda: os.pwrite(fd, b"y", 0), lambda: os.ftruncate(fd, 1),
                               lambda: os.posix_fallocate(fd, 0, 20000), lambda: os.fchown(fd, -1, -1),
                               lambda: os.copy_file_range(fd, fd, 10, 0, 4096)):
                    try:
                        action()
                        print("changed")
                    except OSError as error:
                        print(error.errno)
                """
            try Command(["mkfifo", "-m", "644", "\(vault.plain)/locked"]).run().succeeded()
            let process = try writer.command(
                [Products.python, "-c", script, "\(vault.mountpoint)/f", vault.plain]
            ).start()
            defer { process.kill(SIGKILL) }
            try poll("the file") { process.output.contains("ready") }
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try Command(["sh", "-c", ": >\"$0\"", "\(vault.plain)/locked"]).run().succeeded()
            #expect(process.wait(timeout: .seconds(20)) == 0, "\(process.errors)")
            #expect(process.output == "ready\n" + String(repeating: "\(ENOKEY)\n", count: 5))
            let kept = try Command(["find", vault.vault, "-type", "f", "-perm", "6777"]).run().succeeded().output
            #expect(kept.split(separator: "\n").count == 1)
        }
    }
}
