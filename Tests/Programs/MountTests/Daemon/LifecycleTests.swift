import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A mount from init to unmount, its possible ends, and the files that exist afterwards.
    @Suite struct Lifecycle {
        @Test("files still exist after mounting again", arguments: Settings.available)
        func remount(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try vault.account.program("model/workload.py", [vault.mountpoint]).succeeded()
            let before = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded()
            try vault.remount()
            let after = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded()
            expectSameLines(after.output, as: before.output, "after mounting again")
            try vault.unmount()
            #expect(try !vault.isMounted())
            #expect(try vault.account.run(["ls", "-A", vault.mountpoint]).output.isEmpty)
        }

        @Test("a mount that cannot answer a request fails", .enabled(if: Products.isRoot, "takes root"))
        func unanswered() throws {
            let vault = try VaultUnderTest()
            let result = try vault.tryMount(
                launcher: [Products.python, Products.program("commands/without_call.py"), "unshare"])
            #expect(result.exitCode == 7)
            let reason = "the mount ended before its first answer, see the log"
            #expect(result.errors == "vaultfs: cannot mount at \(vault.mountpoint): \(reason)\n")
            #expect(try !vault.isMounted())
            // The remains must not prevent the next mount.
            try vault.mount()
            try vault.unmount()
        }

        @Test(
            "the daemon does not stay in the directory that it was started from",
            .enabled(if: Products.isRoot, "takes root"))
        func workingDirectory() throws {
            let vault = try VaultUnderTest()
            try vault.mount(launcher: ["env", "-C", vault.plain])
            let daemon = try #require(vault.daemon)
            let script = "for task in /proc/$1/task/*; do readlink $task/cwd; done | sort -u"
            #expect(try Command(["sh", "-c", script, "sh", "\(daemon)"]).run().output == "/\n")
            try vault.unmount()
        }

        @Test("a refused mount is no unclean end of the vault", arguments: Settings.accounts)
        func refused(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try vault.unmount()
            try vault.account.run(["rm", "\(vault.vault)/vaultfs.log"]).succeeded()
            try vault.account.run(["mkdir", "\(vault.vault)/vaultfs.log"]).succeeded()
            #expect(try vault.tryMount().exitCode == 3)
            #expect(try vault.account.run(["cat", "\(vault.vault)/vaultfs.lock"]).output == "\n")
        }

        @Test("a vault that is moved while it is mounted: status has its path, and a secret unlocks it")
        func moved() throws {
            let vault = try VaultUnderTest().mounted(["--on-lock", "forget"])
            #expect(try vault.status()["vaultPath"] as? String == vault.vault)
            let moved = "\(vault.store.path)/moved"
            #expect(rename(vault.vault, moved) == 0)
            #expect(try vault.status()["vaultPath"] as? String == moved)
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", vault.passfile]).succeeded()
            try vault.unmount()
        }

        @Test("max_read=N", arguments: Settings.accounts)
        func maximumRead(setting: Setting) throws {
            let vault = try setting.vault().mounted(["-o", "max_read=8192"])
            let script = """
                head -c 1000000 /dev/urandom > plain; cp plain "$1/f"; cmp plain "$1/f"
                dd if="$1/f" iflag=direct bs=1M status=none | cmp plain -
                """
            let command = ["sh", "-c", "set -e; cd \"$2\"; \(script)", "sh", vault.mountpoint, vault.plain]
            try vault.account.run(command).succeeded()
            #expect(try vault.isMounted())
            try vault.unmount()
            #expect(try vault.tryMount(["-o", "max_read=4095"]).exitCode == 2)
        }

        @Test("fusermount3 -u, and mounting again at once", arguments: Settings.accounts)
        func fusermount(setting: Setting) throws {
            let vault = try setting.vault()
            for round in 1...3 {
                try vault.mount()
                try vault.account.run(["sh", "-c", "echo \(round) >> \(vault.mountpoint)/log"]).succeeded()
                try vault.account.run(["fusermount3", "-u", vault.mountpoint]).succeeded()
                // Mount at once: the new daemon must wait for the old one, which is still sealing files before it
                // exits.
            }
            try vault.mount()
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/log"]).output == "1\n2\n3\n")
            try vault.unmount()
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
        }

        @Test("after unmount nothing uses the store, so that its file system can be unmounted too")
        func processHasEnded() throws {
            let vault = try VaultUnderTest()
            for _ in 1...5 {
                try vault.mount()
                let daemon = try #require(vault.daemon)
                try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
                // An ended process has at most its number in /proc, until its parent asks for it.
                var target: CChar = 0
                #expect(readlink("/proc/\(daemon)/exe", &target, 1) == -1)
            }
        }

        @Test("SIGTERM and SIGINT unmount", arguments: Settings.accounts, [SIGTERM, SIGINT])
        func signals(setting: Setting, signal: Int32) throws {
            let vault = try setting.vault().mounted()
            try vault.account.run(["sh", "-c", "echo kept > \(vault.mountpoint)/f"]).succeeded()
            kill(try #require(vault.daemon), signal)
            try vault.awaitDaemonsEnd()
            #expect(try !vault.isMounted())
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
        }

        @Test("an old daemon that ends does not unmount a new mount at its place", arguments: Settings.accounts)
        func replaced(setting: Setting) throws {
            let (vault, other) = (try setting.vault(), try setting.vault())
            let lock = ["--lock-file", "\(vault.plain)/lock"]
            try vault.mount(lock)
            let old = try #require(vault.daemon)
            defer { if !MountUnderTest.hasEnded(old) { kill(old, SIGKILL) } }
            let script = "exec 5> \(vault.mountpoint)/f; echo old >&5; echo open; exec sleep 60"
            let user = try vault.account.command(["sh", "-c", script]).start()
            defer { user.kill(SIGKILL) }
            try poll("the open file") { user.output == "open\n" }
            try vault.account.run(["fusermount3", "-uz", vault.mountpoint]).succeeded()
            let mount = [vault.account.binary, "mount", other.vault, vault.mountpoint, "--passfile", other.passfile]
            try vault.mounting(mount + lock).succeeded()
            #expect(vault.daemon != old && !MountUnderTest.hasEnded(old))
            try vault.account.run(["sh", "-c", "echo new > \(vault.mountpoint)/f"]).succeeded()
            kill(old, SIGTERM)
            try poll("the old daemon's end", timeout: .seconds(20)) { MountUnderTest.hasEnded(old) }
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/f"]).output == "new\n")
            try vault.unmount()
            #expect(try vault.read(["--require-sealed"]).exitCode == 0)
        }

        @Test("in the foreground until it is unmounted")
        func foreground() throws {
            let vault = try VaultUnderTest()
            let process = try vault.start(["mount", "-f", vault.vault, vault.mountpoint, "--passfile", vault.passfile])
            defer { process.kill(SIGKILL) }
            try poll("the mount") { try vault.isMounted() }
            // An unmount before the first answer counts as a failed mount.
            try vault.account.run(["stat", vault.mountpoint]).succeeded()
            Products.countMount()
            #expect(process.wait(timeout: .milliseconds(1)) == nil)
            try vault.account.run(["fusermount3", "-u", vault.mountpoint]).succeeded()
            #expect(process.wait(timeout: .seconds(20)) == 0)
        }

        @Test("a busy mount is not unmounted, and the error says so")
        func busy() throws {
            let vault = try VaultUnderTest().mounted()
            let holder = try vault.account.command(["sleep", "60"]).start()
            holder.kill(SIGKILL)
            let user = try vault.account.command(["env", "-C", vault.mountpoint, "sleep", "60"]).start()
            defer { user.kill(SIGKILL) }
            try poll("the working directory") {
                try vault.account.run(["readlink", "/proc/\(user.pid)/cwd"]).output == vault.mountpoint + "\n"
            }
            let result = try vault.vaultfs(["unmount", vault.mountpoint])
            expectFailure(result, .inUse)
            #expect(try vault.isMounted())
        }

        @Test(
            "a copy of the mount in another namespace keeps no keys",
            .enabled(if: Products.isRoot, "takes root, for unshare")
        )
        func otherNamespace() throws {
            let vault = try VaultUnderTest().mounted()
            let holder = try Command(["unshare", "-m", "sh", "-c", "echo here; exec sleep 60"]).start()
            defer { holder.kill(SIGKILL) }
            try poll("the namespace") { holder.output == "here\n" }
            try vault.unmount()
            #expect(try !vault.isMounted())
        }

        @Test("a read-only store mounts read-only", .enabled(if: Products.isRoot, "takes root, for a bind mount"))
        func readOnlyStore() throws {
            let vault = try VaultUnderTest().mounted()
            try vault.account.program("model/workload.py", [vault.mountpoint]).succeeded()
            let before = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded()
            try vault.unmount()
            try Command(["mount", "--bind", vault.vault, vault.vault]).run().succeeded()
            defer { try? poll("the unmount") { try Command(["umount", vault.vault]).run().exitCode == 0 } }
            try Command(["mount", "-o", "remount,ro,bind", vault.vault]).run().succeeded()
            try vault.mount()
            let found = try vault.account.program("model/look.py", [vault.mountpoint, "--xattrs"]).succeeded()
            expectSameLines(found.output, as: before.output, "read-only")
            let result = try vault.account.run(["touch", "\(vault.mountpoint)/x"])
            #expect(result.errors.contains("Read-only file system"))
            try vault.unmount()
        }

        @Test("an open file that was unlinked leaves nothing")
        func unlinkedOpen() throws {
            let vault = try VaultUnderTest().mounted()
            let script = "exec 5<>\(vault.mountpoint)/f; echo x >&5; rm \(vault.mountpoint)/f; cat /dev/fd/5; sync"
            try vault.account.run(["bash", "-c", script]).succeeded()
            try vault.unmount()
            let left = try vault.account.run(["ls", "-A", vault.vault]).output.split(separator: "\n").sorted()
            let own = ["vaultfs.dir", "vaultfs.json", "vaultfs.lock", "vaultfs.log"]
            #expect(left.filter { !own.contains(String($0)) } == [])
        }
    }
}
