import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Classes set and shown by programs and by `vaultfs protect`, and their effect.
    @Suite struct ProtectionClasses {
        /// Runs a script in the mountpoint.
        private func run(_ vault: VaultUnderTest, _ script: String) throws -> CommandResult {
            let shell = ["timeout", "30", "bash", "-c", "set -e; cd \(vault.mountpoint); \(script)"]
            return try vault.account.run(shell)
        }

        private func classes(_ vault: VaultUnderTest, _ names: String...) throws -> [String] {
            try names.map { name in
                try run(vault, "getfattr --only-values -n user.vaultfs.class \(name)").succeeded().output
            }
        }

        /// Returns each path's class according to the independent reader, 1 to 4. The root is `.`.
        private func classesOnDisk(_ vault: VaultUnderTest, afterKill: Bool = false) throws -> [String: String] {
            let reading = try vault.read(afterKill ? ["--xattrs"] : ["--require-sealed", "--xattrs"]).succeeded()
            let lines = reading.output.split(separator: "\n").map { $0.split(separator: "\t") }
            let entries = lines.filter { $0.count == 5 && $0[0] != "xattr" }
            return Dictionary(entries.map { (String($0[4]), String($0[1])) }) { first, _ in first }
        }

        @Test(
            "setfattr and getfattr, inheritance, mv and copies, and the same after mounting again",
            arguments: Settings.available)
        func attribute(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try run(
                vault,
                """
                mkdir d; echo before >d/before; echo f >f; ln -s f link
                setfattr -n user.vaultfs.class -v unless-open d; setfattr -n user.vaultfs.class -v none f
                echo in >d/in; mkdir d/inner; echo deep >d/inner/deep; ln -s in d/link; cp d/in d/copy
                mv f d/moved; mv d/in out; cp -a d/moved copied; cp -a d copied-tree; ln d/copy hard
                setfattr -n user.color -v green out; mkdir tarred; tar --xattrs -cf - out d | tar --xattrs -C tarred -xf -
                """
            ).succeeded()
            let wanted = [
                "d": "2", "d/before": "1", "d/in": nil, "d/inner": "2", "d/inner/deep": "2", "d/link": "2",
                "d/copy": "2",
                "d/moved": "4", "out": "2", "hard": "2", "link": "1", "copied": "1", "copied-tree": "1",
                "copied-tree/moved": "1", "tarred/out": "1", "tarred/d/moved": "1",
            ]
            #expect(
                try classes(vault, "d", "d/moved", "out", ".") == ["unless-open", "none", "unless-open", "complete"])
            try vault.unmount()
            let found = try classesOnDisk(vault)
            for (path, digit) in wanted { #expect(found[path] == digit, "\(path)") }
            try vault.mount()
            #expect(
                try classes(vault, "d", "d/moved", "out", "copied") == [
                    "unless-open", "none", "unless-open", "complete",
                ])
            #expect(try run(vault, "cat d/moved out d/inner/deep tarred/out").output == "f\nin\ndeep\nin\n")
        }

        @Test("protect warns about a file that a lock hides with its directory")
        func hiddenByDirectory() throws {
            let vault = try VaultUnderTest().mounted()
            try run(vault, "mkdir -p a/b; echo f >a/b/f").succeeded()
            let paths = (vault.mountpoint, "\(vault.mountpoint)/a", "\(vault.mountpoint)/a/b/f")
            func warning(_ path: String, _ directory: String) -> String {
                "vaultfs: warning: \(path): while the vault is locked it is not found, because the directory \(directory) has "
                    + "the class complete\n"
            }
            let file = try vault.vaultfs(["protect", "none", paths.2]).succeeded()
            #expect(file.errors == warning(paths.2, "\(paths.1)/b"))
            #expect(
                try vault.vaultfs(["protect", "-R", "none", paths.1]).succeeded().errors == warning(paths.1, paths.0))
            #expect(try vault.vaultfs(["protect", "inbox", paths.1]).succeeded().errors == warning(paths.1, paths.0))
            #expect(try vault.vaultfs(["protect", "none", paths.1]).succeeded().errors == warning(paths.1, paths.0))
            #expect(try vault.vaultfs(["protect", "unless-open", paths.2]).succeeded().errors.isEmpty)
            #expect(try vault.vaultfs(["protect", "none", paths.0]).succeeded().errors.isEmpty)
            #expect(try vault.vaultfs(["protect", "none", paths.2]).succeeded().errors.isEmpty)
            try vault.unmount()
        }

        @Test("attributes that setfattr must not change")
        func refused() throws {
            let vault = try VaultUnderTest().mounted()
            try run(vault, "echo f >f; ln -s f link; mkfifo fifo").succeeded()
            let refusals = [
                ("setfattr -n user.vaultfs.class -v nothing f", "Invalid argument"),
                ("setfattr -h -n user.vaultfs.class -v none link", "Operation not permitted"),
                ("setfattr -n user.vaultfs.class -v none fifo", "Operation not permitted"),
                ("setfattr -x user.vaultfs.class f", "Operation not permitted"),
            ]
            for (script, error) in refusals { #expect(try run(vault, script).errors.contains(error), "\(script)") }
            #expect(try run(vault, "getfattr -d -m - f").output.isEmpty, "it is not listed")
            try vault.remount(["-o", "ro"])
            let result = try run(vault, "setfattr -n user.vaultfs.class -v none f")
            #expect(result.errors.contains("Read-only file system"))
        }

        @Test("rsync transfers nothing again after a change of class", arguments: Settings.accounts)
        func rsync(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            // The pause is longer than a tick of the kernel's clock, so a later change would get another time.
            let script = "mkdir t t/d; head -c 300000 /dev/urandom >t/a; echo b >t/d/b; chmod 751 t/d; sleep 0.01"
            try run(vault, script).succeeded()
            let transfer = "rsync -aHAX --itemize-changes t/ \(vault.plain)/t"
            try run(vault, transfer).succeeded()
            // Leave out the atime of directories, which `protect -R` lists.
            let times = "stat -c '%n %x %y %z %s %a' t/a t/d/b; stat -c '%n %y %a' t/d t"
            let before = try run(vault, times).succeeded().output
            try vault.vaultfs(["protect", "-R", "none", "\(vault.mountpoint)/t"]).succeeded()
            #expect(try run(vault, times).output == before)
            #expect(try run(vault, transfer).succeeded().output == "")
            try vault.remount()
            #expect(try run(vault, transfer).succeeded().output == "")
            #expect(try classes(vault, "t/a", "t/d/b", "t/d", "t") == ["none", "none", "none", "none"])
        }

        @Test(
            "protect sets and shows classes, also of a tree, and follows no link inside it",
            arguments: Settings.accounts)
        func protect(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try run(
                vault, "mkdir -p t/d; echo a >t/a; echo b >t/d/b; echo o >outside; ln -s ../outside t/l; mkfifo t/p"
            ).succeeded()
            let t = "\(vault.mountpoint)/t"
            #expect(try vault.vaultfs(["protect", "unless-open", t, "\(t)/d/b"]).succeeded().output == "")
            let shown = try vault.vaultfs(["protect", "--recursive", t]).succeeded()
            #expect(shown.output == "unless-open  \(t)\ncomplete  \(t)/a\ncomplete  \(t)/d\nunless-open  \(t)/d/b\n")
            try vault.vaultfs(["protect", "none", "-R", "\(t)/"]).succeeded()
            let json = try vault.vaultfs(["protect", "-R", "--json", t]).succeeded()
            let entries = try JSONDecoder().decode([[String: String]].self, from: Data(json.output.utf8))
            #expect(entries.map { $0["path"] } == [t, "\(t)/a", "\(t)/d", "\(t)/d/b"])
            #expect(entries.allSatisfy { $0["class"] == "none" })
            // A link named as an argument is followed.
            #expect(try vault.vaultfs(["protect", "\(t)/l"]).succeeded().output == "complete  \(t)/l\n")
            #expect(try classes(vault, "outside") == ["complete"])
            // root may write everywhere.
            guard !setting.isRoot else { return }
            try run(vault, "chmod 400 t/a").succeeded()
            let partial = try vault.vaultfs(["protect", "-R", "complete", t])
            expectFailure(partial, .failure, naming: "\(t)/a", "complete", "Permission denied")
            #expect(try classes(vault, "t/a", "t/d/b") == ["none", "complete"])
        }

        @Test("protect: a path outside of any mount, and a path with the name of a class")
        func protectRefuses() throws {
            let vault = try VaultUnderTest().mounted()
            // Only this test's directories, because a broken command would set an attribute on any path given to it.
            for path in [vault.plain, vault.vault] {
                for arguments in [["protect", path], ["protect", "none", path], ["protect", "-R", "none", path]] {
                    expectFailure(try vault.vaultfs(arguments), .failure, naming: path, "not on a vaultfs mount")
                }
            }
            let attributes = try vault.account.run(["getfattr", "-d", "-m", "-", vault.plain, vault.vault])
            #expect(!attributes.output.contains("vaultfs.class"))
            expectFailure(try vault.vaultfs(["protect"]), .usage)
            expectFailure(try vault.vaultfs(["protect", "none"]), .usage, naming: "none")
            expectFailure(try vault.vaultfs(["protect", "nothing", vault.mountpoint]), .usage, naming: "unless-open")
            expectFailure(try vault.vaultfs(["protect", "/nonexistent"]), .failure, naming: "/nonexistent")
            try run(vault, "echo f >none; mkfifo p").succeeded()
            expectFailure(try vault.vaultfs(["protect", "\(vault.mountpoint)/p"]), .failure, naming: "neither a file")
            func inside(_ arguments: String...) throws -> CommandResult {
                try vault.account.run([vault.account.binary, "protect"] + arguments, directory: vault.mountpoint)
            }
            #expect(try inside("none").succeeded().output == "complete  none\n")
            #expect(try inside("./none", "none").succeeded().output == "complete  ./none\ncomplete  none\n")
            #expect(try inside("none", "none").succeeded().output == "")
            #expect(try inside("none").succeeded().output == "none  none\n")
        }

        @Test("a damaged entry is named, and the rest of the tree is changed")
        func damaged() throws {
            let vault = try VaultUnderTest().mounted()
            try run(vault, "echo a >a; echo b >b; echo c >c; mkdir d; echo e >d/e").succeeded()
            try vault.unmount()
            try vault.tamper(["flip_header", "b", "20"])
            try vault.tamper(["directory_record", "d", "flip", "40"])
            try vault.mount()
            let result = try vault.vaultfs(["protect", "-R", "none", vault.mountpoint])
            #expect(result.exitCode == Failure.failure.rawValue)
            let lines = result.errors.split(separator: "\n")
            #expect(lines.count == 2 && lines[0].contains("\(vault.mountpoint)/b") && lines[1].contains("/d "))
            #expect(try classes(vault, ".", "a", "c") == ["none", "none", "none"])
        }

        @Test(
            "a mount that is killed while classes change has old or new classes, and no remains",
            arguments: Settings.accounts)
        func killed(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try run(vault, "for i in {1..40}; do mkdir d$i; echo $i >d$i/f; done").succeeded()
            let binary = vault.account.binary
            let loop =
                "while true; do for c in none complete; do \(binary) protect -R $c \(vault.mountpoint); done; done"
            let changes = try vault.account.command(["timeout", "20", "bash", "-c", "(\(loop)) 2>/dev/null"]).start()
            defer { changes.kill(SIGKILL) }
            try poll("a change of the last directory") { try classes(vault, "d9/f") == ["none"] }
            try vault.killDaemon()
            changes.kill(SIGKILL)
            try vault.mount()
            #expect(try run(vault, "ls -R >/dev/null; cat d*/f | sort -n | uniq | wc -l").succeeded().output == "40\n")
            try vault.unmount()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            #expect(try Command(["find", vault.vault, "-name", "vaultfs.tmp.*"]).run().output == "")
            #expect(try Set(classesOnDisk(vault, afterKill: true).values).isSubset(of: ["1", "4"]))
        }
    }
}
