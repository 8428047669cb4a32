import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Descriptors and memory of the daemon, bounded under every load.
    @Suite struct Bounds {
        @Test("a walk over 20,000 files with 256 descriptors")
        func manyFiles() throws {
            let vault = try VaultUnderTest().mounted(openFiles: 256)
            let script = """
                import os
                for d in range(100):
                    os.makedirs("%d/a/b" % d)
                    for f in range(200):
                        with open("%d/%sf%d" % (d, "a/b/" if f % 2 else "", f), "w") as file: file.write(str(f))
                """
            try vault.account.run(
                [Products.python, "-c", "import os; os.chdir('\(vault.mountpoint)')\n\(script)"], timeout: .seconds(180)
            ).succeeded()
            try vault.unmount()
            try vault.mount(openFiles: 256)
            for command in [
                "find . -type f | wc -l", "cat $(find . -type f) | wc -c", "find . -type f -newer . | wc -l",
            ] {
                let result = try vault.account.run(
                    ["sh", "-c", "cd \(vault.mountpoint) && \(command)"], timeout: .seconds(120))
                #expect(result.errors.isEmpty, "\(result)")
                if command.hasPrefix("find . -type f |") { #expect(result.output == "20000\n") }
            }
            try Command([Products.python, Products.program("posix/hold_open.py"), vault.mountpoint, "1000"]).run()
                .succeeded()
            if Products.isRoot { #expect(try vault.descriptors() < 256) }
        }

        @Test(
            "no descriptor leaks, and memory stays at 64 MiB beside the cache",
            .enabled(if: Products.isRoot, "takes root, to look at the daemon's descriptors"),
            arguments: Settings.accounts)
        func memoryAndDescriptors(setting: Setting) throws {
            let vault = try setting.vault().mounted(["--cache-size", "\(16 << 20)"])
            func work(_ round: Int) throws {
                let directory = "\(vault.mountpoint)/round\(round)"
                try vault.account.run(["mkdir", directory]).succeeded()
                try vault.account.program("model/workload.py", [directory, "300"]).succeeded()
                try vault.account.program("model/look.py", [directory, "--xattrs"]).succeeded()
                let big = "dd if=/dev/zero of=\(directory)/big bs=1M count=48 2>&1 && cat \(directory)/big >/dev/null"
                try vault.account.run(["sh", "-c", "\(big) && rm -rf \(directory)"]).succeeded()
            }
            try work(1)
            let descriptors = try vault.descriptors()
            for round in 2...4 { try work(round) }
            #expect(try vault.descriptors() <= descriptors + 4)
            #expect(try vault.memory("VmHWM") <= (64 + 16) * 1024)
        }
    }

    /// A mounted backing directory, changed by another process.
    @Suite struct HostileStore {
        @Test("a directory swapped for a link leads nowhere", arguments: [false, true])
        func directorySwapped(remount: Bool) throws {
            let vault = try VaultUnderTest().mounted()
            let mount = vault.mountpoint
            try vault.account.run(["sh", "-c", "mkdir -p \(mount)/d/e && echo old >\(mount)/d/f && sync"]).succeeded()
            // The link leads to a copy of the directory. Its files decrypt, so the test would notice if the link were
            // followed.
            let find =
                "import sys; sys.path[:0] = ['\(Products.support)/Programs/store']; import tamper; "
                + "print(tamper.Vault('\(vault.vault)', '\(vault.passfile)').backing('d').decode())"
            let backing = try Command([Products.python, "-c", find]).run().succeeded().output
                .trimmingCharacters(in: .newlines)
            let outside = "\(vault.plain)/outside"
            try Command(["cp", "-a", backing, outside]).run().succeeded()
            try vault.account.run(["sh", "-c", "echo new >\(mount)/d/f"]).succeeded()
            if remount { try vault.unmount() }
            try Command(["mv", backing, "\(vault.plain)/taken"]).run().succeeded()
            try Command(["ln", "-s", outside, backing]).run().succeeded()
            let before = try Command([
                "sh", "-c", "cd \(outside) && find . -type f -exec sha256sum {} + | sort; ls -lR",
            ]).run()
            if remount { try vault.mount() }
            for command in [
                "cat d/f", "ls d", "echo x >d/f", "echo x >>d/f", "touch d/new", "mkdir d/sub", "rm -f d/f",
                "rmdir d/e",
                "mv d/f moved", "echo y >y; mv y d/y", "chmod 777 d/f", "ln d/f linked", "chmod 700 d/e", "ls d/e",
                "touch d/e/x",
            ] {
                let result = try vault.account.run(["sh", "-c", "cd \(mount) && \(command)"])
                #expect(!result.output.contains("old"), "\(command) read what lies outside")
            }
            let after = try Command(["sh", "-c", "cd \(outside) && find . -type f -exec sha256sum {} + | sort; ls -lR"])
                .run()
            expectSameLines(after.output, as: before.output, "outside the vault")
        }

        @Test("a file swapped for a link is not followed")
        func fileSwapped() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "cd \(vault.mountpoint) && echo one >f && echo two >g"]).succeeded()
            try vault.unmount()
            let swap = """
                set -e; cd \(vault.vault); for f in $(find . -type f ! -name 'vaultfs.*'); do
                cp $f ../plain/$f; rm $f; ln -s \(vault.plain)/$f $f; done
                """
            try Command(["bash", "-c", swap]).run().succeeded()
            let digest = "sha256sum \(vault.plain)/* | sort"
            let before = try Command(["sh", "-c", digest]).run().succeeded().output
            try vault.mount()
            for command in [
                "cat f", "echo x >f", "echo x >>g", "truncate -s 0 g", "chmod 777 f", "setfattr -n user.x -v 1 g",
            ] {
                let result = try vault.account.run(["sh", "-c", "cd \(vault.mountpoint) && \(command)"])
                #expect(result.exitCode != 0, "\(result)")
            }
            #expect(try Command(["sh", "-c", digest]).run().succeeded().output == before)
        }

        @Test("names from a sync client are hidden and cause no error")
        func strangersInTheVault() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.run(["sh", "-c", "echo mine >\(vault.mountpoint)/f"]).succeeded()
            let strangers = """
                cd \(vault.vault) && touch 'f (conflicted copy)' .sync README vaultfs.strange AAAA && mkdir .stfolder && mkfifo pipe \
                && ln -s /etc/passwd link && touch vaultfs.long.AAAA vaultfs.long.AAAA.name && touch $(printf '\\377\\376')
                """
            try Command(["sh", "-c", strangers]).run().succeeded()
            #expect(try vault.account.run(["ls", "-A", vault.mountpoint]).output == "f\n")
            try vault.remount()
            #expect(try vault.account.run(["ls", "-A", vault.mountpoint]).output == "f\n")
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/f"]).output == "mine\n")
            try vault.account.run(["sh", "-c", "echo more >\(vault.mountpoint)/README"]).succeeded()
            try vault.unmount()
            #expect(try Command(["ls", "-A", vault.vault]).run().output.contains("conflicted copy"))
        }
    }
}
