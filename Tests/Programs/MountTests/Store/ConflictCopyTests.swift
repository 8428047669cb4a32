import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Copies kept by sync clients in a conflict, as users see them (FileFormat, Conflict copies).
    @Suite struct ConflictCopies {
        private static let longName = String(repeating: "long ", count: 48) + "name.txt"
        private static let syncthing = ".sync-conflict-20261124-101010-ABCDEFG"
        private static let nextcloud = " (conflicted copy 2026-11-24 101010)"

        /// Python with `entry` (the backing entry of a name in the mount), `copies` (its conflict copies), and `shown`.
        private static let prelude = """
            import os, shutil, sys, time
            vault, mount, long = sys.argv[1:4]
            additions = ["\(syncthing)", "\(nextcloud)", " (Ada's conflicted copy 2026-11-24)",
                " (SFConflict ada@example.org 2026-11-24-10-10-10)", ".conflict1", "..path1", "~"]
            def entry(name):
                inode = os.lstat(os.path.join(mount, name)).st_ino
                return next(e for e in os.listdir(vault) if os.lstat(os.path.join(vault, e)).st_ino == inode)
            def copies(entry):
                yield from (entry + addition for addition in additions)
                if entry.startswith("vaultfs.long."):
                    yield from ("vaultfs.long" + addition + entry[12:] for addition in additions[:2])
            def duplicate(name, target):
                source, target = os.path.join(vault, entry(name)), os.path.join(vault, target)
                shutil.copytree(source, target) if os.path.isdir(source) else shutil.copy2(source, target)
            def shown(name):
                stem, extension = os.path.splitext(name)
                return [n for n in os.listdir(mount) if n.startswith(stem[:150] + (" (conflict " if len(name) < 150 else ""))
                        and n.endswith(")" + extension)]
            def read(name):
                with open(os.path.join(mount, name)) as file: return file.read()

            """

        private func run(_ script: String, _ vault: VaultUnderTest) throws -> CommandResult {
            let command = [Products.python, "-c", Self.prelude + script, vault.vault, vault.mountpoint, Self.longName]
            return try vault.account.run(command)
        }

        @Test("Names-6, Names-7, Store-40, Store-41: each client's copy of a file, a directory and a long name")
        func forms() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                os.mkdir(mount + "/d")
                for name in "report.odt", "plain", long, "d/inner":
                    with open(os.path.join(mount, name), "w") as file: file.write("first " + name)
                for name in "report.odt", "plain", long, "d":
                    for copy in copies(entry(name)): duplicate(name, copy)
                for name in "report.odt", "plain", long:
                    with open(os.path.join(mount, name), "w") as file: file.write("second " + name)
                assert "report (conflict sync-conflict-20261124-101010-ABCDEFG).odt" in os.listdir(mount)
                assert "report (conflict (conflicted copy 2026-11-24 101010)).odt" in os.listdir(mount)
                refused = (30,) if os.geteuid() == 0 else (13, 30)
                for name, count in ("report.odt", 7), ("plain", 7), (long, 9):
                    assert len(shown(name)) == count, shown(name)
                    assert read(name) == "second " + name
                    for copy in shown(name):
                        assert len(os.fsencode(copy)) <= 255
                        assert read(copy) == "first " + name, copy
                        status = os.stat(os.path.join(mount, copy))
                        assert status.st_size == len("first " + name)
                        assert status.st_mode & 0o777 == 0o444 & os.stat(os.path.join(mount, name)).st_mode, status
                        assert os.access(os.path.join(mount, copy), os.R_OK)
                        assert os.geteuid() == 0 or not os.access(os.path.join(mount, copy), os.W_OK)
                        for change in (lambda p: open(p, "r+"), lambda p: open(p, "a"), lambda p: os.truncate(p, 0),
                            lambda p: os.chmod(p, 0o600), lambda p: os.setxattr(p, "user.a", b"1"), lambda p: os.utime(p),
                            lambda p: os.link(p, mount + "/other"), lambda p: os.rename(mount + "/plain", p)):
                            try: change(os.path.join(mount, copy))
                            except OSError as error: assert error.errno in refused, (copy, error)
                            else: raise AssertionError(copy)
                        try: os.rename(os.path.join(mount, copy), mount + "/other")
                        except OSError as error: assert error.errno == 18, error
                        else: raise AssertionError(copy)
                assert len(shown("d")) == 7
                for copy in shown("d"):
                    assert read(copy + "/inner") == "first d/inner"
                    for change in (lambda p: open(p + "/inner", "a"), lambda p: open(p + "/new", "w"),
                        lambda p: os.mkdir(p + "/new")):
                        try: change(os.path.join(mount, copy))
                        except OSError as error: assert error.errno in refused, (copy, error)
                        else: raise AssertionError(copy)
                print(sum(len(shown(name)) for name in ("report.odt", "plain", long, "d")))
                """
            let count = try run(script, vault).succeeded().output.dropLast()
            #expect(count == "30")
            #expect(try vault.statistic("conflictCopies") == 30)
            #expect(
                try vault.vaultfs(["status", vault.mountpoint]).succeeded().output.contains(
                    "30 copies of sync clients were listed"))

            // mv(1) turns a copy into a file of its own, and rm(1) removes it, even without its twin.
            let moves = """
                cd "$1"
                mv "report (conflict conflict1).odt" own.odt; chmod u+w own.odt; echo more >>own.odt
                mv "d (conflict conflict1)" own; chmod u+w own/inner; echo more >>own/inner; echo new >own/new
                rm "$2" report.odt; rm -r d
                cat own.odt own/inner own/new; ls | grep -c conflict
                rm -rf *conflict*; ls
                """
            let result = try vault.account.run(["sh", "-ec", moves, "sh", vault.mountpoint, Self.longName]).succeeded()
            let expected = "first report.odtmore\nfirst d/innermore\nnew\n28\nown\nown.odt\nplain\n"
            #expect(result.output == expected)
            try vault.unmount()
            let report = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            #expect(report.output.contains("no damage"), "\(report)")
            #expect(!report.output.contains("conflict"), "\(report)")
        }

        @Test("Store-40: copies from before and after a change in the log, after a kill", arguments: [false, true])
        func killed(_ isReadOnly: Bool) throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                for name in "twin", long:
                    path = os.path.join(mount, name)
                    with open(path, "w") as file: file.write("first " * 2000)
                os.sync()
                for name in "twin", long:
                    duplicate(name, entry(name) + ".conflict1")
                    duplicate(name, entry(name) + "~")
                    with open(os.path.join(mount, name), "r+") as file:
                        file.write("again " * 2000)
                        file.flush(); os.fsync(file.fileno())
                    duplicate(name, entry(name) + " (conflicted copy 2026-11-24 101010)")
                """
            try run(script, vault).succeeded()
            try vault.killDaemon()
            let verified = try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            #expect(verified.output.contains("conflict: twin (conflict conflict1): "), "\(verified)")
            try vault.mount(isReadOnly ? ["--read-only"] : [])
            let check = """
                for name in "twin", long:
                    assert read(name) == "again " * 2000, read(name)[:20]
                    assert len(shown(name)) == 3, shown(name)
                    for copy in shown(name): assert read(copy) == "first " * 2000, copy
                """
            try run(check, vault).succeeded()
            #expect(try vault.status()["problems"] == nil)
            try vault.unmount()
            let plain = "\(vault.plain)/exported"
            try vault.vaultfs(["export", vault.vault, plain, "--passfile", vault.passfile]).succeeded()
            #expect(try FileManager.default.contentsOfDirectory(atPath: plain).count == 8)
            let rekeyed = try vault.vaultfs(["rekey", vault.vault, "--passfile", vault.passfile])
            #expect(rekeyed.exitCode != 0)
            #expect(rekeyed.errors.contains("is a conflict copy"), "\(rekeyed)")
        }

        @Test("Store-40: a client renames a file that is being changed, and the daemon is killed")
        func renamedAndKilled() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                with open(mount + "/f", "w") as file: file.write("first " * 2000)
                os.sync()
                own = entry("f")
                file = os.open(mount + "/f", os.O_RDWR)
                os.pwrite(file, b"again " * 2000, 0)
                os.fsync(file)
                os.rename(os.path.join(vault, own), os.path.join(vault, own + ".sync-conflict-1"))
                """
            try run(script, vault).succeeded()
            try vault.killDaemon()
            try vault.mount()
            let check = "assert read('f (conflict sync-conflict-1)') == 'again ' * 2000"
            try run(check, vault).succeeded()
            try vault.unmount()
        }

        @Test("Store-40: changes of a file that is removed do not get into an older conflict copy, after a kill")
        func removedAndKilled() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                with open(mount + "/f", "w") as file: file.write("first " * 2000)
                os.sync()
                duplicate("f", entry("f") + "~")
                # The clock of files is coarse, and the change must be later.
                clock = 5  # CLOCK_REALTIME_COARSE
                made = time.clock_gettime(clock)
                while time.clock_gettime(clock) < made + 12 * time.clock_getres(clock): pass
                file = os.open(mount + "/f", os.O_RDWR)
                os.pwrite(file, b"again " * 500, 0)
                os.fsync(file)
                os.close(file)
                os.remove(mount + "/f")
                """
            try run(script, vault).succeeded()
            try vault.killDaemon()
            try vault.mount()
            try run("assert read('f (conflict ~)') == 'first ' * 2000", vault).succeeded()
            try vault.unmount()
        }

        @Test("an open file that gets a conflict copy's name too stays one file")
        func linkedBelow() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                one = os.open(mount + "/f", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.write(one, b"1" * 3000)
                os.link(os.path.join(vault, entry("f")), os.path.join(vault, entry("f") + "~"))
                os.listdir(mount); os.stat(mount + "/f (conflict ~)")
                two = os.open(mount + "/f", os.O_WRONLY | os.O_APPEND)
                os.write(two, b"2" * 3000); os.write(one, b"3" * 3000); os.write(two, b"4" * 3000)
                """
            try run(script, vault).succeeded()
            try vault.remount()
            try run("assert read('f') == '1' * 3000 + '2' * 3000 + '3' * 3000 + '4' * 3000", vault).succeeded()
            try vault.unmount()
        }

        @Test("Store-40: a file that a client renames while it is open can be changed by the open descriptor only")
        func renamedWhileOpen() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                os.mkdir(mount + "/d")
                for name, renamed, copy in ("f", "f", "f (conflict ~)"), ("d/f", "d", "d (conflict ~)/f"):
                    file = os.open(os.path.join(mount, name), os.O_RDWR | os.O_CREAT)
                    os.write(file, b"1" * 3000)
                    own = os.path.join(vault, entry(renamed))
                    os.rename(own, own + "~")
                    copy = os.path.join(mount, copy)
                    os.listdir(mount)
                    assert os.stat(copy).st_ino == os.fstat(file).st_ino
                    for change in (lambda p: open(p, "r+"), lambda p: open(p, "w"), lambda p: os.truncate(p, 0),
                        lambda p: os.chmod(p, 0o600), lambda p: os.utime(p)):
                        try: change(copy)
                        except OSError as error: assert error.errno == 30, error
                        else: raise AssertionError(copy)
                    os.write(file, b"2" * 3000); os.ftruncate(file, 5000)
                    assert read(os.path.relpath(copy, mount)) == "1" * 3000 + "2" * 2000
                    # The kernel may remember the old name for a moment.
                    for left in range(200, -1, -1):
                        try:
                            with open(os.path.join(mount, renamed if renamed == name else "other"), "w") as new:
                                new.write("new")
                            break
                        except OSError as error:
                            if error.errno != 30 or not left: raise
                            time.sleep(0.05)
                    os.write(file, b"3" * 3000)
                    os.fsync(file); os.close(file)
                """
            try run(script, vault).succeeded()
            try vault.remount()
            let check = """
                for copy in "f (conflict ~)", "d (conflict ~)/f":
                    assert read(copy) == "1" * 3000 + "2" * 2000 + chr(0) * 1000 + "3" * 3000
                    assert os.stat(os.path.join(mount, copy)).st_mode & 0o222 == 0
                assert read("f") == "new"
                """
            try run(check, vault).succeeded()
            try vault.unmount()
        }

        @Test("Store-40: a conflict copy whose name another program makes the twin's is that file from then on")
        func renamedBelow() throws {
            let vault = try VaultUnderTest().mounted()
            let script = """
                with open(mount + "/f", "w") as file: file.write("first")
                own = entry("f")
                duplicate("f", own + "~")
                assert read("f (conflict ~)") == "first"
                os.remove(mount + "/f")
                os.rename(os.path.join(vault, own + "~"), os.path.join(vault, own))
                with open(mount + "/f", "a") as file: file.write(" more")
                assert read("f") == "first more"
                assert os.listdir(mount) == ["f"]
                """
            try run(script, vault).succeeded()
            try vault.unmount()
        }
    }
}
