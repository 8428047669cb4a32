import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Paths as people type them: the vault for its mountpoint, no path, several. Also mounts without a reachable
    /// daemon.
    @Suite struct CommandPaths {
        @Test("commands for a mount take the vault's path", arguments: Settings.accounts)
        func vaultForMountpoint(setting: Setting) throws {
            let vault = try setting.vault()
            expectFailure(try vault.vaultfs(["status", vault.vault]), .mountpoint, naming: vault.vault)
            try vault.mount()
            for command in [["status"], ["lock"], ["unlock"], ["sync"]] {
                let result = try vault.vaultfs(command + [vault.vault])
                #expect(result.exitCode == 0, "\(command): \(result)")
            }
            try vault.vaultfs(["unmount", vault.vault]).succeeded()
            #expect(try !vault.isMounted())
        }

        @Test("vault and mountpoint the wrong way round")
        func wrongWayRound() throws {
            let vault = try VaultUnderTest()
            let swapped = ["mount", vault.mountpoint, vault.vault, "--passfile", vault.passfile]
            expectFailure(
                try vault.vaultfs(swapped), .usage, naming: "'vaultfs mount \(vault.vault) \(vault.mountpoint)'?")
            try vault.mount()
            for command in [["info"], ["slot", "list"], ["verify"]] {
                let result = try vault.vaultfs(command + [vault.mountpoint])
                expectFailure(result, .notAVault, naming: "is where \(vault.vault) is mounted")
            }
        }

        @Test("a dead mount is listed with the command that removes it", arguments: Settings.accounts)
        func dead(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            kill(try #require(vault.daemon), SIGKILL)
            try vault.awaitDaemonsEnd()
            let removal = "'vaultfs unmount \(vault.mountpoint)' removes"
            expectFailure(try vault.vaultfs(["status", vault.mountpoint]), .mountpoint, naming: removal)
            let other = try setting.vault().mounted()
            kill(try #require(other.daemon), SIGKILL)
            try other.awaitDaemonsEnd()
            let all = try vault.vaultfs(["status"])
            for mountpoint in [vault.mountpoint, other.mountpoint] {
                #expect(all.exitCode == 6 && all.errors.contains("'vaultfs unmount \(mountpoint)' removes"), "\(all)")
            }
            let row = all.output.split(separator: "\n").first { $0.contains(" \(vault.mountpoint) ") }
            #expect(row?.hasPrefix("dead ") == true && row?.hasSuffix(" \(vault.vault)") == true, "\(all)")
            let lock = try vault.vaultfs(["lock", vault.vault]).succeeded()
            #expect(lock.output.contains("its daemon has ended"))
            // These commands cannot do their work without a daemon.
            for command in ["sync", "unlock", "events"] {
                expectFailure(try vault.vaultfs([command, vault.mountpoint]), .mountpoint, naming: removal)
            }
            let json = try vault.vaultfs(["status", "--json", vault.mountpoint])
            #expect(json.exitCode == 6 && json.output.contains(#""state" : "dead""#), "\(json)")
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
            #expect(try !vault.isMounted())
        }

        @Test("a lock of a dead mount names the programs that can still read what the kernel has cached")
        func deadInUse() throws {
            let vault = try VaultUnderTest().mounted()
            try Data("text".utf8).write(to: URL(fileURLWithPath: "\(vault.mountpoint)/file"))
            let file = try #require(FileHandle(forReadingAtPath: "\(vault.mountpoint)/file"))
            #expect(try file.read(upToCount: 4) == Data("text".utf8))
            kill(try #require(vault.daemon), SIGKILL)
            try vault.awaitDaemonsEnd()
            expectFailure(try vault.vaultfs(["lock", vault.mountpoint]), .notPurged, naming: "(\(getpid()))")
            try file.close()
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
        }

        @Test("unmount prints a line; of a daemon that was just killed it is no failure", arguments: Settings.accounts)
        func killed(setting: Setting) throws {
            let vault = try setting.vault()
            for _ in 0..<5 {
                try vault.mount()
                try vault.account.run(["sh", "-c", "echo text >\(vault.mountpoint)/file"]).succeeded()
                kill(try #require(vault.daemon), SIGKILL)
                let unmounted = try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
                #expect(
                    unmounted.output.hasPrefix("\(vault.mountpoint): unmounted; its daemon had ended before"),
                    "\(unmounted)")
                #expect(try !vault.isMounted())
                try vault.awaitDaemonsEnd()
            }
            try vault.mount()
            let unmounted = try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
            #expect(unmounted.output == "\(vault.mountpoint): unmounted\n", "\(unmounted)")
            try vault.mount()
            #expect(try vault.vaultfs(["unmount", "--quiet", vault.mountpoint]).succeeded().output.isEmpty)
        }

        @Test("a daemon out of reach is named as that, and unmount waits for its end", arguments: Settings.accounts)
        func outOfReach(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            // This is about users, because root's daemons have their sockets in one place. Root's case must work too.
            let elsewhere = ["XDG_RUNTIME_DIR": "/nonexistent"]
            if !setting.isRoot {
                let status = try vault.account.run([vault.account.binary, "status"], environment: elsewhere)
                #expect(status.output.contains("\(vault.mountpoint)"), "\(status)")
                #expect(status.output.contains("XDG_RUNTIME_DIR"), "\(status)")
                let synced = try vault.account.run([vault.account.binary, "sync"], environment: elsewhere)
                expectFailure(synced, .failure, naming: "no vaultfs daemon answers: try the XDG_RUNTIME_DIR")
            }
            let script = "head -c 60M /dev/zero > \(vault.mountpoint)/large"
            try vault.account.run(["sh", "-c", script], timeout: .seconds(60)).succeeded()
            try vault.account.run(
                [vault.account.binary, "unmount", vault.mountpoint], environment: elsewhere, timeout: .seconds(60)
            ).succeeded()
            // The command returns after the kernel has closed the daemon's connections, just before the daemon's end.
            try vault.awaitDaemonsEnd(timeout: .seconds(1))
        }

        @Test("unlock says that the session is locked, if its lock file is there")
        func sessionIsLocked() throws {
            let vault = try VaultUnderTest()
            for (name, advice) in [
                ("device.lock", ", as while your session is locked: unlock the screen, or remove it\n"),
                ("other", ": remove it first\n"),
            ] {
                let file = "\(vault.store.path)/\(name)"
                try Data().write(to: URL(fileURLWithPath: file))
                try vault.mount(["--lock-file", file])
                let result = try vault.vaultfs(["unlock", vault.mountpoint])
                expectFailure(result, .lockFileExists, naming: "\(vault.mountpoint): locked by \(file)\(advice)")
                try vault.unmount()
            }
        }

        @Test(
            "a mountpoint in another user's mount is refused with the reason",
            .enabled(if: Products.isRoot, "takes root"))
        func closedMountpoint() throws {
            let visitor = try #require(Account.visitor)
            let (theirs, own) = (try VaultUnderTest(visitor), try VaultUnderTest())
            try theirs.mount()
            try visitor.run(["mkdir", "\(theirs.mountpoint)/inside"]).succeeded()
            let arguments = ["mount", own.vault, "\(theirs.mountpoint)/inside", "--passfile", own.passfile]
            expectFailure(try own.vaultfs(arguments), .mountpoint, naming: "only with -o allow_root or allow_other")
            try theirs.unmount()
        }

        @Test(
            "a mount whose run-time directory has gone is reached again",
            .enabled(if: Settings.hasOrdinaryUser, "takes a user"))
        func lostDirectory() throws {
            let vault = try Setting.userOnTmpfs.vault()
            let runtime = try #require(vault.environment["XDG_RUNTIME_DIR"])
            try vault.mount()
            try vault.account.run(["sh", "-ec", "echo 1 >$1/f; rm -r $2/vaultfs", "sh", vault.mountpoint, runtime])
                .succeeded()
            // The lock file's directory has gone too, so the vault is locked.
            try poll("the unlock") { try vault.vaultfs(["unlock", vault.mountpoint]).exitCode == 0 }
            #expect(try vault.account.run(["cat", "\(vault.mountpoint)/f"]).succeeded().output == "1\n")
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
        }

        @Test("unmount names the programs that use the mount; several mounts at once", arguments: Settings.accounts)
        func unmountSeveral(setting: Setting) throws {
            let (first, second) = (try setting.vault(), try setting.vault())
            try first.mount()
            try second.mount()
            let user = try first.account.command(["sh", "-c", "cd \(first.mountpoint) && exec sleep 60"]).start()
            defer { user.kill(SIGKILL) }
            try poll("sleep") {
                try first.account.run(["readlink", "/proc/\(user.pid)/cwd"]).output.hasPrefix(first.mountpoint)
            }
            let busy = try first.vaultfs(["umount", first.mountpoint, second.mountpoint])
            expectFailure(busy, .inUse, naming: "by sleep (\(user.pid))")
            #expect(try first.isMounted() && !second.isMounted())
            user.kill(SIGKILL)
            _ = user.wait(timeout: .seconds(20))
            try first.vaultfs(["unmount", first.vault]).succeeded()
        }

        @Test("lock --forget asks for the passphrase at the unlock, once", arguments: Settings.accounts)
        func forget(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            let kept = try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            #expect(
                kept.output.hasSuffix("will ask for no passphrase ('vaultfs lock --forget' makes it ask)\n"), "\(kept)")
            let forgotten = try vault.vaultfs(["lock", "--forget", vault.mountpoint]).succeeded()
            #expect(forgotten.output.contains("'vaultfs unlock' will need the passphrase"), "\(forgotten)")
            #expect(try vault.vaultfs(["unlock", vault.mountpoint]).exitCode != 0)
            try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", vault.passfile]).succeeded()
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try vault.vaultfs(["unlock", vault.mountpoint]).succeeded()
        }
    }
}
