import TestSupport
import Testing

extension PlainMountTests {
    /// The behaviour of the mount and of the file system below it: one program must have the same output on both.
    @Suite struct Posix {
        static let programs = ["posix_names.py", "posix_directories.py", "posix_data.py", "posix_metadata.py"]

        @Test("the mount behaves as the store below it", arguments: Settings.available, programs)
        func mountBehavesAsTheStoreBelow(setting: Setting, program: String) throws {
            let vault = try setting.vault().mounted()
            let expected = try vault.account.program("posix/\(program)", [vault.plain], timeout: .seconds(120))
                .succeeded()
            let found = try vault.account.program("posix/\(program)", [vault.mountpoint], timeout: .seconds(120))
                .succeeded()
            expectSameLines(found.output, as: expected.output, program)
            #expect(expected.output.split(separator: "\n").count > 5)
            try vault.unmount()
            // Only root can read everything, because the program leaves files that deny access to their own owner.
            guard Products.isRoot else { return }
            try vault.read(["--require-sealed", "--xattrs"]).succeeded()
        }

        @Test(
            "two users and root on root's mount", .enabled(if: Products.isRoot, "takes root"),
            arguments: Settings.available.filter(\.isRoot), ["posix_users.py", "posix_setid.py"])
        func usersAndGroups(setting: Setting, program: String) throws {
            let vault = try setting.vault().mounted(["-o", "allow_other"])
            let expected = try vault.account.program("posix/\(program)", [vault.plain]).succeeded()
            let found = try vault.account.program("posix/\(program)", [vault.mountpoint]).succeeded()
            expectSameLines(found.output, as: expected.output, program)
        }

        @Test(
            "whoever checks the rights, the answers are those of the store", arguments: Settings.accounts,
            [[], ["-o", "default_permissions"]])
        func rights(setting: Setting, options: [String]) throws {
            let vault = try setting.vault().mounted(options)
            let mounts = try vault.account.run(["cat", "/proc/self/mounts"]).output
            let line = try #require(mounts.split(separator: "\n").first { $0.contains(" \(vault.mountpoint) ") })
            #expect(line.contains("default_permissions") == (setting.isRoot || !options.isEmpty))
            let expected = try vault.account.program("posix/posix_access.py", [vault.plain]).succeeded()
            let found = try vault.account.program("posix/posix_access.py", [vault.mountpoint]).succeeded()
            expectSameLines(found.output, as: expected.output, "posix_access.py")
        }

        @Test(
            "root's process without capabilities may do on root's own mount what it may do in the store, and no more",
            .enabled(if: Products.isRoot, "takes root"), arguments: Settings.available.filter(\.isRoot))
        func withoutCapabilities(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let script = """
                cd "$1"; umask 022; mkdir other; echo secret > other/f; echo secret > f; chmod 600 f other/f; chmod 700 other
                chown 12345:12345 f other/f other
                for call in "cat f" "tee f" "ls other" "stat -c %s other/f" "rm other/f" "chmod 666 f" "touch f" "ln f g" \
                    "mknod d c 1 3" "chown 0 f" "setfattr -n trusted.a -v 1 f" "setfattr -n user.a -v 1 f"; do
                    setpriv --bounding-set=-all --inh-caps=-all $call </dev/null >/dev/null 2>&1; echo "$call: $?"
                done
                """
            let expected = try vault.account.run(["sh", "-c", script, "sh", vault.plain]).succeeded()
            let found = try vault.account.run(["sh", "-c", script, "sh", vault.mountpoint]).succeeded()
            expectSameLines(found.output, as: expected.output, "the same calls")
            #expect(expected.output.split(separator: "\n").allSatisfy { !$0.hasSuffix(": 0") }, "\(expected.output)")
        }

        @Test("set-id bits on a user's own mount", arguments: Settings.available.filter { !$0.isRoot })
        func setID(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let expected = try vault.account.program("posix/posix_setid.py", [vault.plain]).succeeded()
            let found = try vault.account.program("posix/posix_setid.py", [vault.mountpoint]).succeeded()
            expectSameLines(found.output, as: expected.output, "posix_setid.py")
        }

        @Test("an ordinary user on root's mount", .enabled(if: Products.isRoot, "takes root"), arguments: programs)
        func visitor(program: String) throws {
            let visitor = try #require(Account.visitor)
            let vault = try VaultUnderTest().mounted(["-o", "allow_other"])
            try Command(["chmod", "777", vault.mountpoint, vault.plain]).run().succeeded()
            let expected = try visitor.program("posix/\(program)", [vault.plain], timeout: .seconds(120)).succeeded()
            let found = try visitor.program("posix/\(program)", [vault.mountpoint], timeout: .seconds(120)).succeeded()
            expectSameLines(found.output, as: expected.output, program)
        }

        @Test("without allow_other, another user is kept out", .enabled(if: Products.isRoot, "takes root"))
        func keptOut() throws {
            let visitor = try #require(Account.visitor)
            let vault = try VaultUnderTest().mounted()
            let result = try visitor.run(["ls", vault.mountpoint])
            #expect(result.exitCode != 0)
        }

        @Test(
            "a command for another user's mount is refused with the user's name",
            .enabled(if: Products.isRoot, "takes root"))
        func anothersMount() throws {
            let visitor = try #require(Account.visitor)
            let vault = try VaultUnderTest().mounted(["-o", "allow_other"])
            for (command, action) in [
                ("status", "see its status"), ("lock", "lock it"), ("unlock", "unlock it"),
                ("sync", "synchronize it"), ("events", "follow its events"), ("unmount", "unmount it"),
            ] {
                let result = try visitor.run([visitor.binary, command, vault.mountpoint])
                #expect(result.exitCode == 1, "\(result)")
                let expected = "vaultfs: \(vault.mountpoint): mounted by root: only root can \(action)\n"
                #expect(result.errors == expected, "\(result)")
            }
            #expect(try vault.isMounted())
            // Debian's home directories have this mode.
            try Command(["chmod", "700", vault.store.path]).run().succeeded()
            let result = try visitor.run([visitor.binary, "lock", vault.mountpoint])
            #expect(result.errors.contains("mounted by root: only root can lock it"), "\(result)")
        }

        @Test("mount options show", .enabled(if: Products.isRoot, "takes root"))
        func mountOptions() throws {
            let vault = try VaultUnderTest().mounted(["-o", "ro,noexec,nosuid,nodev,allow_other,fsname=my-vault"])
            let mounts = try vault.account.run(["cat", "/proc/self/mounts"]).output
            let line = try #require(mounts.split(separator: "\n").first { $0.contains(" \(vault.mountpoint) ") })
            #expect(line.hasPrefix("my-vault \(vault.mountpoint) fuse.vaultfs ro,"))
            for option in ["nosuid", "nodev", "noexec", "default_permissions"] { #expect(line.contains(option)) }
            let result = try vault.account.run(["touch", "\(vault.mountpoint)/x"])
            #expect(result.errors.contains("Read-only file system"))
        }
    }
}
