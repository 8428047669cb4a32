import Foundation
import Glibc
import TestSupport
import Testing

extension PlainMountTests {
    /// Reads in order, for which the daemon decrypts the next part ahead.
    @Suite struct ReadAhead {
        /// Sums a file, read in order and past the page cache.
        private static let sum = "dd if=\"$0\" bs=128k iflag=direct status=none | sha256sum"
        private static let size = 12 << 20

        private func makeFile(_ vault: VaultUnderTest) throws -> String {
            let path = "\(vault.mountpoint)/film"
            try vault.account.run(["sh", "-c", "head -c \(Self.size) /dev/urandom >\"$0\"", path]).succeeded()
            return path
        }

        @Test(
            "reads in order past the page cache come from the block cache; others and random ones do not",
            arguments: ["4K", "64K", "1M"])
        func used(chunkSize: String) throws {
            let vault = try VaultUnderTest(arguments: ["--chunk-size", chunkSize]).mounted()
            let path = try makeFile(vault)
            let expected = try vault.account.run(["sh", "-c", "sha256sum <\"$0\"", path]).succeeded().output
            try vault.remount()
            try vault.account.run(["sh", "-c", "cat \"$0\" >/dev/null", path]).succeeded()
            // Larger chunks are hit too, because several requests fall into a cached one.
            if chunkSize == "4K" { #expect(try vault.statistic("cacheHits") == 0) }
            #expect(try vault.account.run(["sh", "-c", Self.sum, path]).succeeded().output == expected)
            #expect(try vault.statistic("cacheHits") > 0 && vault.statistic("cacheUsed") >= 1 << 20)
            try vault.remount()
            let before = try vault.statistic("aesBlocksDecrypted")
            for offset in [9, 3, 7, 1, 5] {
                try vault.account.run([
                    "dd", "if=\(path)", "of=/dev/null", "bs=1M", "count=1", "skip=\(offset)", "iflag=direct",
                ]).succeeded()
            }
            #expect(try vault.statistic("aesBlocksDecrypted") - before == 5 << 16)
            try vault.unmount()
        }

        @Test("a lock while programs read in order leaves nothing, and the reads go on after the unlock")
        func locked() throws {
            let vault = try VaultUnderTest().mounted()
            let path = try makeFile(vault)
            let expected = try vault.account.run(["sh", "-c", "sha256sum <\"$0\"", path]).succeeded().output
            let reading = try vault.account.command(
                ["sh", "-c", "while :; do dd if=\"$0\" of=/dev/null bs=128k iflag=direct 2>/dev/null; done", path]
            ).start()
            defer { reading.kill(SIGKILL) }
            for _ in 0..<20 {
                try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
                #expect(try vault.statistic("cacheUsed") == 0)
                try vault.vaultfs(["unlock", vault.mountpoint]).succeeded()
                #expect(try vault.account.run(["sh", "-c", Self.sum, path]).succeeded().output == expected)
            }
            reading.kill(SIGKILL)
            _ = reading.wait(timeout: .seconds(10))
            try vault.unmount()
        }

        @Test(
            "a hundred readers take no more memory than one", .enabled(if: Products.isRoot, "reads /proc of the daemon")
        )
        func manyReaders() throws {
            let vault = try VaultUnderTest().mounted(["--cache-size", "8M"])
            let path = try makeFile(vault)
            try vault.account.run(["sh", "-c", Self.sum, path]).succeeded()
            let before = try vault.memory("VmRSS")
            let script = "seq 100 | xargs -P 100 -I{} dd if=\"$0\" of=/dev/null bs=64k iflag=direct status=none"
            try vault.account.run(["sh", "-c", script, path], timeout: .seconds(120)).succeeded()
            // The growth is buffers of workers that had not run before.
            #expect(try vault.memory("VmRSS") - before < 24 << 10)
            try vault.unmount()
        }
    }
}
