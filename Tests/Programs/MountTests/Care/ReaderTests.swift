import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// The format in two implementations: the mount reads the other's files, and the independent reader reads the
    /// mount's.
    @Suite struct Readers {
        static let vectors = ["vault-4096", "vault-16384"]

        /// Returns `kind class size content path` without the class, in look.py's form.
        static func withoutClass(_ listing: String) -> String {
            listing.split(separator: "\n").map { line in
                let fields = line.split(separator: "\t", omittingEmptySubsequences: false)
                // An attribute's line has no class: kind, name, size, digest, path.
                return fields[0] == "xattr"
                    ? String(line) : (fields.prefix(1) + fields.dropFirst(2)).joined(separator: "\t")
            }.joined(separator: "\n")
        }

        static func expected(_ vector: String) throws -> String {
            try String(contentsOfFile: "\(Products.support)/Vectors/\(vector).expected.tsv", encoding: .utf8)
        }

        @Test("a vault that another implementation wrote", arguments: vectors)
        func vectorOnTheMount(vector: String) throws {
            let vault = try VaultUnderTest(initialise: false)
            try Command(["cp", "-a", "\(Products.support)/Vectors/\(vector)/.", vault.vault]).run().succeeded()
            try vault.mount(["-o", "ro"])
            let found = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded()
            expectSameLines(found.output + "", as: Self.withoutClass(try Self.expected(vector)) + "\n", vector)
            try vault.unmount()
        }

        @Test("the independent reader on the same vault", arguments: vectors)
        func vectorByTheReader(vector: String) throws {
            let options = ["--passfile", "-", "--digests", "--require-sealed", "--xattrs"]
            let result = try Command(
                [Products.python, Products.reader, "\(Products.support)/Vectors/\(vector)"] + options,
                input: VaultUnderTest.passphrase
            ).run().succeeded()
            expectSameLines(result.output, as: try Self.expected(vector), vector)
        }

        @Test("Log-3, Log-8, Log-10 to Log-12, Log-15: the independent reader's own tests")
        func ownTests() throws {
            try Command([
                Products.python, "-m", "unittest", "discover", "-s", "\(Products.root)/Reader",
            ]).run().succeeded()
        }

        @Test("files that every operation wrote", arguments: Settings.available, [4096, 16384, 1_048_576])
        func written(setting: Setting, chunkSize: Int) throws {
            let vault = try setting.vault(arguments: ["--chunk-size", "\(chunkSize)"]).mounted()
            try vault.account.program("model/workload.py", [vault.mountpoint, "200"]).succeeded()
            let onMount = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded()
            try vault.unmount()
            let byReader = try vault.read(["--require-sealed", "--xattrs"]).succeeded()
            #expect(byReader.errors.isEmpty)
            expectSameLines(Self.withoutClass(byReader.output) + "\n", as: onMount.output, "the reader")
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
        }

        @Test("while mounted, every file that was written and closed verifies")
        func whileMounted() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.program("model/workload.py", [vault.mountpoint]).succeeded()
            let onMount = try vault.account.program("model/look.py", [vault.mountpoint]).succeeded()
            let byReader = try vault.read().succeeded()
            expectSameLines(Self.withoutClass(byReader.output) + "\n", as: onMount.output, "the reader")
        }

        @Test("Names-3, Store-40: after a kill the reader gives the log's entries to the file alone")
        func log() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                import os, shutil, sys
                vault, mount = sys.argv[1:]
                def entry(name):
                    inode = os.lstat(os.path.join(mount, name)).st_ino
                    return next(e for e in os.listdir(vault) if os.lstat(os.path.join(vault, e)).st_ino == inode)
                os.mkdir(mount + "/d"); os.mkdir(vault + "/.stversions")
                for name in "f", "renamed":
                    with open(os.path.join(mount, name), "wb") as file: file.write(b"first " * 2000)
                os.sync()
                f, d = entry("f"), entry("d")
                for copy in ".stversions/x~2026", ".sync.tmp", "A" * 43, os.path.join(d, f), f + "~":
                    shutil.copy2(os.path.join(vault, f), os.path.join(vault, copy))
                for name in "f", "renamed":
                    with open(os.path.join(mount, name), "r+b") as file:
                        file.write(b"again " * 2000)
                        file.flush(); os.fsync(file.fileno())
                for copy in ".stversions/y~2026", ".zzz.tmp":
                    shutil.copy2(os.path.join(vault, f), os.path.join(vault, copy))
                own = os.path.join(vault, entry("renamed"))
                os.rename(own, own + ".sync-conflict-1")
                """
            try vault.account.run([Products.python, "-c", script, vault.vault, vault.mountpoint]).succeeded()
            try vault.killDaemon()
            let reader = [Products.python, Products.reader, vault.vault, "--passfile", vault.passfile]
            for (path, text) in [
                ("f", "again "), ("f (conflict ~)", "first "), ("renamed (conflict sync-conflict-1)", "again "),
            ] {
                let found = try Command(reader + [path]).run()
                #expect(found.output == String(repeating: text, count: 2000), "\(path): \(found.errors)")
            }
        }

        @Test("the recovery key and a keyfile open the vault")
        func otherSlots() throws {
            let vault = try VaultUnderTest(initialise: false)
            let made = try vault.vaultfs([
                "init", vault.vault, "--passfile", vault.passfile, "--scrypt-logn", "10",
            ]).succeeded()
            let pattern = /([0-9a-fA-F]{8}-){8}[0-9a-fA-F]{8}/
            let key = try #require((made.output + made.errors).firstMatch(of: pattern)).output.0
            try Command(
                [Products.python, Products.reader, vault.vault, "--recovery-key-file", "-"], input: String(key)
            ).run().succeeded()
        }
    }
}
