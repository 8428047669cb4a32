import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A copy of a vault in which hard links became files with one id (FileFormat, Header-8).
    @Suite struct CopiedLinks {
        /// Makes a file with three names in the mount.
        private static let make = """
            import os, sys
            os.chdir(sys.argv[1])
            with open("one", "wb") as file: file.write(b"a" * 20000)
            os.link("one", "two"); os.link("one", "three")
            """

        /// Overwrites a byte of each file named, durably.
        private static let change = """
            import os, sys
            os.chdir(sys.argv[1])
            for name in sys.argv[2:]:
                file = os.open(name, os.O_RDWR)
                os.pwrite(file, name[:1].upper().encode(), 5000)
                os.fsync(file)
                os.close(file)
            """

        private func python(_ script: String, _ vault: VaultUnderTest, _ names: [String] = []) throws {
            try vault.account.run([Products.python, "-c", script, vault.mountpoint] + names).succeeded()
        }

        /// Replaces the unmounted vault's files by copies without hard links, as made by a sync client.
        private func breakLinks(_ vault: VaultUnderTest) throws {
            let script = """
                cp -a --no-preserve=links $1/. $2
                find $1 -mindepth 1 -delete
                cp -a --no-preserve=links $2/. $1
                """
            try FileManager.default.createDirectory(atPath: "\(vault.plain)/copy", withIntermediateDirectories: true)
            try Command(["sh", "-ec", script, "sh", vault.vault, "\(vault.plain)/copy"]).run().succeeded()
        }

        private func changedBytes(_ vault: VaultUnderTest) throws -> String {
            let script = "cd $1; for f in one two three; do dd if=$f bs=1 skip=5000 count=1 2>/dev/null; done"
            return try vault.account.run(["sh", "-c", script, "sh", vault.mountpoint]).succeeded().output
        }

        @Test("Header-8: each copy keeps what was written to it, also after a kill", arguments: [false, true])
        func written(_ isKilled: Bool) throws {
            let vault = try VaultUnderTest().mounted()
            try python(Self.make, vault)
            try vault.unmount()
            try breakLinks(vault)
            try vault.mount()
            try python(Self.change, vault, ["two"])
            if isKilled { try vault.killDaemon() } else { try vault.unmount() }
            try vault.mount()
            #expect(try changedBytes(vault) == "aTa")
            try python(Self.change, vault, ["one", "three", "two"])
            if isKilled { try vault.killDaemon() } else { try vault.unmount() }
            try vault.mount()
            #expect(try changedBytes(vault) == "OTT")
            #expect(try vault.status()["problems"] == nil)
            try vault.unmount()
            let report = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            #expect(report.output.contains("no damage"), "\(report)")
        }

        @Test("Log-5: changes in the log from before the copy are in each file")
        func logged() throws {
            let vault = try VaultUnderTest().mounted()
            try python(Self.make, vault)
            try vault.vaultfs(["sync", vault.mountpoint]).succeeded()
            try python(Self.change, vault, ["one"])
            try vault.killDaemon()
            try breakLinks(vault)
            try vault.mount()
            #expect(try changedBytes(vault) == "OOO")
            try python(Self.change, vault, ["two"])
            try vault.remount()
            #expect(try changedBytes(vault) == "OTO")
            try vault.unmount()
        }

        @Test("Header-8: two files that a sync client made of one, without hard links, keep what is written to each")
        func merged() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run([Products.python, "-c", Self.makePlain, vault.mountpoint]).succeeded()
            try vault.unmount()
            // One machine renames the file, another changes it, and a client merges both.
            try FileManager.default.createDirectory(atPath: "\(vault.plain)/copy", withIntermediateDirectories: true)
            try Command(["cp", "-a", "\(vault.vault)/.", "\(vault.plain)/copy"]).run().succeeded()
            try vault.mount()
            try vault.account.run(["mv", "\(vault.mountpoint)/one", "\(vault.mountpoint)/two"]).succeeded()
            try vault.unmount()
            try Command(["sh", "-c", "cp -an $1/copy/* $2", "sh", vault.plain, vault.vault]).run().succeeded()
            try vault.mount()
            try vault.account.run(["sh", "-c", "cd $1; cat one two; cp two three", "sh", vault.mountpoint]).succeeded()
            try python(Self.change, vault, ["one", "two", "one"])
            try vault.remount()
            #expect(try changedBytes(vault) == "OTa")
            try vault.unmount()
        }

        private static let makePlain = """
            import os, sys
            with open(sys.argv[1] + "/one", "wb") as file: file.write(b"a" * 20000)
            """

        @Test("Header-8: names of one file stay one file, and its times stay")
        func links() throws {
            let vault = try VaultUnderTest().mounted()
            try python(Self.make, vault)
            let script = """
                cd $1; touch -d 2001-02-03 one; ln one four
                stat -c '%h %y' one; ls -i one four | cut -d' ' -f1 | uniq -c
                """
            let result = try vault.account.run(["sh", "-ec", script, "sh", vault.mountpoint]).succeeded().output
            #expect(result.hasPrefix("4 2001-02-03 00:00:00"), "\(result)")
            #expect(result.contains(" 2 "))
            try python(Self.change, vault, ["one", "three", "two"])
            try vault.killDaemon()
            try vault.mount()
            #expect(try changedBytes(vault) == "TTT")
            try vault.unmount()
        }
    }
}
