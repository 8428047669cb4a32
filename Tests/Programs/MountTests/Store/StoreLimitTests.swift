import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Stores that are full, or cannot have so large a file.
    @Suite struct StoreLimits {
        private func shell(_ vault: VaultUnderTest, _ script: String) throws -> String {
            try vault.account.run(["sh", "-ec", script, "sh", vault.mountpoint, vault.vault, vault.store.path])
                .succeeded().output
        }

        @Test(
            "Log-17: a log whose changes have no space is mounted read-only, with everything in it, until there is space",
            .enabled(if: Products.isRoot, "takes root"))
        func noSpace() throws {
            let vault = try VaultUnderTest(on: .smallTmpfs).mounted()
            _ = try shell(
                vault, "head -c 5000 /dev/urandom >$1/f; sync $1/f; head -c 60000 /dev/urandom >>$1/f; sync $1/f")
            let digest = try shell(vault, "sha256sum <$1/f")
            try vault.killDaemon()
            // The copy lacks the reserved space.
            _ = try shell(
                vault,
                "cp -a $2 $2.copy; rm -rf $2; mv $2.copy $2; head -c 64M /dev/zero >$3/ballast 2>/dev/null || true")
            let mounted = try vault.tryMount()
            let problem =
                "mounted read-only: changes in vaultfs.log cannot be put in place (No space left on device): free 1 MiB there, "
                + "then try again"
            #expect(mounted.exitCode == 0 && mounted.errors.contains(problem), "\(mounted)")
            #expect(try vault.status()["problems"] as? [String] == [problem])
            #expect(try vault.status()["readOnly"] as? Bool == true)
            #expect(try shell(vault, "sha256sum <$1/f") == digest)
            #expect(try vault.account.run(["touch", "\(vault.mountpoint)/g"]).errors.contains("Read-only file system"))
            try vault.unmount()
            let repaired = try vault.vaultfs(["verify", "--repair", "--yes", vault.vault, "--passfile", vault.passfile])
            #expect(
                repaired.exitCode == Failure.failure.rawValue && repaired.errors.contains("free 1 MiB there"),
                "\(repaired)")
            _ = try shell(vault, "rm $3/ballast")
            try vault.mount()
            #expect(try shell(vault, "sha256sum <$1/f") == digest)
            #expect(try vault.status()["problems"] == nil)
            try vault.unmount()
        }

        private static let large = """
            import os, sys
            limit, file = 16 << 40, os.open(sys.argv[1] + "/f", os.O_CREAT | os.O_RDWR)
            os.write(file, b"hello" * 2000)
            if sys.argv[2] == "shrunk":
                # From here on the log has the file's length.
                os.ftruncate(file, 5000)
            for change in (lambda: os.pwrite(file, b"x", limit), lambda: os.ftruncate(file, limit)):
                size = os.fstat(file).st_size
                try:
                    change()
                    sys.exit("a size that the store cannot have is acknowledged")
                except OSError as error:
                    if error.strerror != "File too large" or os.fstat(file).st_size != size:
                        raise
            os.fsync(file)
            """

        @Test(
            "Log-16: a file that the store cannot have at that size is EFBIG, and nothing changes",
            .enabled(if: Products.isRoot, "takes root"), arguments: ["fresh", "shrunk"])
        func tooLarge(kind: String) throws {
            let vault = try VaultUnderTest(on: .ext4).mounted()
            try vault.account.run([Products.python, "-c", Self.large, vault.mountpoint, kind]).succeeded()
            try vault.remount()
            #expect(try shell(vault, "stat -c %s $1/f") == (kind == "fresh" ? "10000\n" : "5000\n"))
            try vault.unmount()
        }

        @Test(
            "Log-16: files that grow and are overwritten until an ext4 disk is full are there after a kill",
            .enabled(if: Products.isRoot, "takes root"), arguments: ["4K", "64K"])
        func full(chunkSize: String) throws {
            let vault = try VaultUnderTest(on: .ext4, arguments: ["--chunk-size", chunkSize, "--log-size", "4M"])
                .mounted()
            let sums = try shell(
                vault,
                """
                free=$(df --output=avail -k $3 | tail -n 1)
                fallocate -l $(((free - 9000) * 1024)) $3/ballast
                cd $1
                for i in 1 2 3; do head -c 1000000 /dev/urandom >f$i; done; sync f?
                for n in $(seq 300); do
                    f=f$((n % 3 + 1))
                    head -c 30000 /dev/urandom | dd of=$f bs=30000 oflag=append conv=notrunc status=none 2>&3 || true
                    head -c 70000 /dev/urandom | dd of=$f bs=70000 seek=$((n % 10)) conv=notrunc status=none 2>&3 || true
                done 3>/dev/null
                sha256sum f?
                """)
            try vault.killDaemon()
            try vault.mount()
            #expect(try shell(vault, "cd $1; sha256sum f?") == sums)
            try vault.unmount()
        }
    }
}
