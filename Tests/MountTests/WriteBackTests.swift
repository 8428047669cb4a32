import Foundation
import TestSupport
import Testing

extension MountTests {
    /// `--write-back`: the kernel keeps written data for a while.
    @Suite struct WriteBack {
        @Test("random operations give what a model gives", arguments: Settings.accounts, [[], ["--write-back"]])
        func exercise(setting: Setting, options: [String]) throws {
            let vault = try setting.vault()
            try vault.mount(options)
            try vault.account.program("exercise.py", ["\(vault.mountpoint)/file"], timeout: .seconds(120)).succeeded()
            try vault.unmount()
            let verify = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile])
            #expect(verify.exitCode == 0, "\(verify)")
        }

        @Test("the mount behaves as the store below it", arguments: PlainMountTests.Posix.programs)
        func posix(program: String) throws {
            let vault = try VaultUnderTest()
            try vault.mount(["--write-back"])
            let expected = try vault.account.program(program, [vault.plain], timeout: .seconds(120)).succeeded()
            let found = try vault.account.program(program, [vault.mountpoint], timeout: .seconds(120)).succeeded()
            // The kernel answers that by itself, and knows no holes.
            let lines = { (output: String) in
                output.split(separator: "\n").filter { !$0.hasPrefix("seek_data_and_hole") }.joined(separator: "\n")
            }
            expectSameLines(lines(found.output), as: lines(expected.output), program)
        }

        @Test("what was fsynced or closed is there after SIGKILL, and most of the rest is not")
        func killed() throws {
            let vault = try VaultUnderTest()
            try vault.mount(["--write-back"])
            let script = """
                import os, sys
                synced, closed, kept = (open(f"{sys.argv[1]}/{n}", "wb", 0) for n in ("synced", "closed", "kept"))
                for file in (synced, closed, kept): file.write(b"x" * 100_000)
                os.fsync(synced.fileno()); closed.close()
                os.kill(int(sys.argv[2]), 9)
                """
            let pid = try #require(vault.daemon)
            try vault.account.run([Products.python, "-c", script, vault.mountpoint, "\(pid)"]).succeeded()
            try vault.awaitDaemonsEnd()
            try Command(["fusermount3", "-uz", vault.mountpoint]).run().succeeded()
            try vault.mount()
            for name in ["synced", "closed"] {
                let size =
                    try FileManager.default.attributesOfItem(atPath: "\(vault.mountpoint)/\(name)")[.size] as? Int
                #expect(size == 100_000, "\(name)")
            }
            let kept = try FileManager.default.attributesOfItem(atPath: "\(vault.mountpoint)/kept")[.size] as? Int
            #expect(try #require(kept) < 100_000)
        }

        @Test(
            "a lock writes what is dirty, and a program that goes on writing is refused",
            arguments: ["refuse", "forget"])
        func lock(policy: String) throws {
            let vault = try VaultUnderTest()
            try vault.mount(["--write-back", "--on-lock", policy])
            let script = """
                import errno, os, subprocess, sys
                binary, mountpoint, passfile = sys.argv[1:]
                fd = os.open(f"{mountpoint}/file", os.O_RDWR | os.O_CREAT)
                data = os.urandom(1 << 20)
                for number in range(24): os.pwrite(fd, data, number << 20)
                print(subprocess.run([binary, "lock", mountpoint, "--json"], check=True, capture_output=True, text=True).stdout)
                for call in (lambda: os.pwrite(fd, b"y" * 4096, 0), lambda: os.pread(fd, 1, 0), lambda: os.fstat(fd)):
                    try: call()
                    except OSError as error: assert error.errno == errno.ENOKEY, error
                    else: sys.exit("not refused")
                os.close(fd)
                subprocess.run([binary, "unlock", mountpoint, "--passfile", passfile], check=True, capture_output=True)
                with open(f"{mountpoint}/file", "rb") as file:
                    assert file.read() == data * 24
                """
            let result = try vault.account.run(
                [Products.python, "-c", script, vault.account.binary, vault.mountpoint, vault.passfile],
                environment: vault.environment, timeout: .seconds(60))
            #expect(result.exitCode == 0, "\(result.output)\n\(result.errors)")
        }

        @Test("a larger read-ahead", .enabled(if: Products.isRoot, "takes root"), arguments: ["--read-ahead", "-o"])
        func readAhead(form: String) throws {
            let vault = try VaultUnderTest()
            try vault.mount([form, form == "-o" ? "read-ahead=512K" : "512K"])
            var status = stat()
            #expect(stat(vault.mountpoint, &status) == 0)
            let (major, minor) = (status.st_dev >> 8 & 0xFFF, status.st_dev & 0xFF | status.st_dev >> 12 & 0xFFF00)
            let file = "/sys/class/bdi/\(major):\(minor)/read_ahead_kb"
            #expect(try String(contentsOfFile: file, encoding: .utf8) == "512\n")
        }

        @Test("options that do not go together, or are out of range")
        func refused() throws {
            let vault = try VaultUnderTest()
            for arguments in [["--write-back", "--no-kernel-cache"], ["--read-ahead", "1K"], ["-o", "read_ahead=x"]] {
                let result = try vault.tryMount(arguments)
                #expect(result.exitCode == 2, "\(arguments): \(result)")
            }
        }
    }
}
