import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// `vaultfs verify` of a mounted vault while a program writes to it.
    @Suite struct VerifyingMounted {
        private func verify(_ vault: VaultUnderTest) throws -> CommandResult {
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
        }

        @Test("changes that programs make meanwhile are no damage; real damage is found")
        func busy() throws {
            let (vault, _) = try Integrity.prepared()
            try vault.tamper(["flip_record", "other", "4", "100"])
            try vault.mount()
            let program = "\(Products.support)/Programs/model/busy_tree.py"
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
                #expect(damage == ["damaged: other: at byte 16384: chunk 4: its data is damaged"], "\(result)")
                #expect(writers.allSatisfy { $0.errors.isEmpty })
            }
        }

        /// At every check another chunk is damaged, so one always is.
        @Test("a chunk that changed at every check is neither whole nor damaged: its own exit code")
        func notTold() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "head -c 400000 /dev/urandom >\(vault.mountpoint)/f"]).succeeded()
            let script = """
                import itertools, os, sys, time
                largest = max((e for e in os.scandir(sys.argv[1]) if not e.name.startswith("vaultfs.")), key=lambda e: e.stat().st_size)
                file = os.open(largest.path, os.O_RDWR)
                def flip(chunk):
                    place = 128 + chunk * 4128 + 100
                    os.pwrite(file, bytes([os.pread(file, 1, place)[0] ^ 1]), place)
                flip(0)
                print("begun", flush=True)
                for chunk in itertools.count(1):
                    flip(chunk % 90)
                    flip((chunk - 1) % 90)
                    time.sleep(0.05)
                """
            let flipping = try Command([Products.python, "-c", script, vault.vault]).start()
            defer {
                flipping.kill(SIGKILL)
                _ = flipping.wait(timeout: .seconds(20))
            }
            try poll("the first damage", timeout: .seconds(30)) { flipping.output == "begun\n" }
            var result = try verify(vault)
            // If the other program was delayed between two checks, both find the same damage, so try again.
            for _ in 1..<20 where result.exitCode != Failure.undetermined.rawValue { result = try verify(vault) }
            #expect(result.exitCode == Failure.undetermined.rawValue, "\(result)")
            #expect(result.output.contains("busy: f: "), "\(result)")
        }

        @Test(
            "root verifies a vault that a user has mounted, and learns which process serves it",
            .enabled(if: Products.isRoot, "takes root"))
        func byRoot() throws {
            let vault = try Setting.userOnTmpfs.vault().mounted()
            try vault.account.run(["sh", "-c", "head -c 50000 /dev/urandom >\(vault.mountpoint)/f"]).succeeded()
            let result = try Command([Products.binary, "verify", vault.vault, "--passfile", vault.passfile]).run()
            #expect(result.exitCode == 0 && result.output.split(separator: "\n").count == 1, "\(result)")
            // Only the daemon's environment names its run-time directory, so root does not find it.
            let info = try Command([Products.binary, "info", vault.vault]).run().succeeded()
            #expect(info.output.contains(/in use +by process \d+ \(vaultfs\)\n/), "\(info)")
            try vault.unmount()
        }

        @Test("unsealed files and the log are normal while a daemon works")
        func quiet() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "head -c 50000 /dev/urandom >\(vault.mountpoint)/f"]).succeeded()
            let result = try verify(vault)
            #expect(result.exitCode == 0 && result.output.split(separator: "\n").count == 1, "\(result)")
        }
    }
}
