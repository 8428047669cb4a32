import Foundation
import Glibc
import TestSupport
import Testing

extension MountTests {
    /// A vault on a store that other machines write, or that stops responding. Two bindfs over one directory behave
    /// like two machines whose server has lost their locks, because each kernel mount keeps its own.
    /// scripts/system/network tests real servers.
    @Suite struct Network {
        /// Returns `st_dev` of a path, or 0 on failure.
        private func device(_ path: String) -> dev_t {
            var status = stat()
            return stat(path, &status) == 0 ? status.st_dev : 0
        }

        /// A vault reached through a bindfs, which can be stopped.
        private final class Machine {
            let mount: VaultUnderTest
            let store: String
            let point: String
            let server: RunningProcess
            private var daemon = 0

            /// - Parameters:
            ///   - directory: another way to the vault's directory. Nil for its own.
            ///   - options: options of the bindfs.
            init(of vault: VaultUnderTest, _ name: String, over directory: String? = nil, options: String? = nil) throws
            {
                mount = vault
                (store, point) = ("\(vault.store.path)/\(name)", "\(vault.store.path)/\(name)-mount")
                try Command(["mkdir", store, point]).run().succeeded()
                let words = options.map { ["-o", $0] } ?? []
                server = try Command(["bindfs", "-f"] + words + [directory ?? vault.vault, store]).start()
                try poll("bindfs at \(store)") { try Machine.isMounted(self.store) }
            }

            deinit {
                server.kill(SIGCONT)
                for path in [point, store] { _ = try? Command(["fusermount3", "-uz", path]).run() }
                if server.wait(timeout: .seconds(5)) == nil { server.kill(SIGKILL) }
            }

            static func isMounted(_ path: String) throws -> Bool {
                try String(contentsOfFile: "/proc/self/mounts", encoding: .utf8).contains(" \(path) fuse")
            }

            func vaultfs(_ arguments: [String], timeout: Duration = .seconds(60)) throws -> CommandResult {
                try mount.vaultfs(arguments, timeout: timeout)
            }

            func mountVault(_ arguments: [String] = []) throws {
                try vaultfs(mounting(store) + arguments).succeeded()
                daemon = try #require(vaultfs(["status", point, "--json"]).succeeded().fields()["pid"] as? Int)
            }

            func mounting(_ store: String) -> [String] {
                let lock = "\(mount.store.path)/device.lock"
                return ["mount", store, point, "--passfile", mount.passfile, "--lock-file", lock]
            }

            /// Starts a program that reads files of the mount while the store is stopped. On return, the program waits
            /// for the daemon, and the daemon for the store.
            func startWaiting(_ names: String...) throws -> RunningProcess {
                let reader = try Command(["cat"] + names.map { "\(point)/\($0)" }).start()
                try poll("a request", timeout: .seconds(30)) {
                    try Self.isWaiting(Int(reader.pid)) && (!Products.isRoot || Self.isWaiting(daemon))
                }
                return reader
            }

            /// Returns true if a thread of the process waits in the kernel for a file system's reply (proc(5), wchan).
            /// Of a daemon, only root can read that.
            private static func isWaiting(_ process: Int) throws -> Bool {
                let places = try Command(["sh", "-c", "cat /proc/\(process)/task/*/wchan"]).run().output
                return ["request_wait_answer", "folio_wait_bit", "fuse_readahead"].contains { places.contains($0) }
            }

            func killDaemon() { Glibc.kill(pid_t(daemon), SIGKILL) }

            /// Returns the guardian's process id.
            func guardian() throws -> pid_t? {
                pid_t(try Command(["pgrep", "-P", "\(daemon)"]).run().output.split(separator: "\n").first ?? "")
            }

            func text(_ name: String) -> String? { try? String(contentsOfFile: "\(point)/\(name)", encoding: .utf8) }

            func put(_ text: String, _ name: String) throws {
                try text.write(toFile: "\(point)/\(name)", atomically: false, encoding: .utf8)
            }

            /// Writes the file's content in place, durably.
            func overwrite(_ name: String, _ text: String) throws {
                let file = open("\(point)/\(name)", O_RDWR | O_CREAT, 0o600)
                defer { close(file) }
                try #require(pwrite(file, text, text.utf8.count, 0) == text.utf8.count && fsync(file) == 0)
            }
        }

        @Test(
            "--shared beside a writer: sees writes, renames and removals; only one machine writes at a time"
        )
        func twoMachines() throws {
            let vault = try VaultUnderTest()
            let (first, second) = (try Machine(of: vault, "first"), try Machine(of: vault, "second"))
            try first.mountVault()
            try second.mountVault(["--shared"])
            try first.put("one", "file")
            try poll("the file") { second.text("file") == "one" }
            try first.put("two, longer", "file")
            try first.put("three", "new")
            try poll("what was rewritten") { second.text("file") == "two, longer" }
            #expect(rename("\(first.point)/new", "\(first.point)/file") == 0)
            try poll("what was renamed") { second.text("file") == "three" }
            unlink("\(first.point)/file")
            try poll("the removal") { second.text("file") == nil }
            #expect(throws: (any Error).self) { try second.put("no", "no") }
            try second.vaultfs(["unmount", second.point]).succeeded()
            // On one machine, the daemon notices the living first writer on either way.
            for store in [second.store, vault.vault] {
                let refused = try second.vaultfs(second.mounting(store))
                let mounted = "is mounted already: at \(first.point), by process "
                #expect(refused.exitCode == 5 && refused.errors.contains(mounted), "\(refused)")
            }
            try first.put("still", "still")
            // The second takes over as another machine would. The first notices the new writer record within two
            // seconds.
            try "5e another-boot 4711 elsewhere\n".write(
                toFile: "\(vault.vault)/vaultfs.lock", atomically: false, encoding: .utf8)
            try second.mountVault()
            try second.put("mine", "mine")
            try poll("the first's refusal") { (try? first.put("early", "early")) == nil }
            #expect(throws: (any Error).self) { try first.put("late", "late") }
            #expect(second.text("mine") == "mine")
            #expect(second.text("late") == nil)
            try second.vaultfs(["unmount", second.point]).succeeded()
            expectFailure(try first.vaultfs(["unmount", first.point]), .notDurable, naming: "vaultfs.lock")
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
        }

        @Test(
            "A kernel that keeps pages when a file is opened: a reader, and the next writer, see what was written since"
        )
        func keptPages() throws {
            let vault = try VaultUnderTest()
            let first = try Machine(of: vault, "first")
            // This works like ceph-fuse: a file's pages stay unless its size changes.
            let second = try Machine(of: vault, "second", options: "kernel_cache,attr_timeout=0,entry_timeout=0")
            let texts = (1...4).map { String(repeating: "\($0)", count: 20_000) }
            try first.mountVault()
            try first.overwrite("file", texts[0])
            try second.mountVault(["--shared"])
            #expect(second.text("file") == texts[0])
            try first.overwrite("file", texts[1])
            try poll("what was overwritten") { second.text("file") == texts[1] }
            try first.overwrite("file", texts[2])
            try poll("what was overwritten again") { second.text("file") == texts[2] }
            try second.vaultfs(["unmount", second.point]).succeeded()
            try first.overwrite("file", texts[3])
            first.killDaemon()
            try poll("the mount") { (try? second.mountVault()) != nil }
            #expect(second.text("file") == texts[3])
            try second.vaultfs(["unmount", second.point]).succeeded()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
        }

        @Test("A stalled store: lock and status return, unlock too, and the remaining data is purged once it continues")
        func silence() throws {
            let vault = try VaultUnderTest()
            let machine = try Machine(of: vault, "store")
            try machine.mountVault()
            try machine.put("content", "file")
            try machine.put("other", "other")
            machine.server.kill(SIGSTOP)
            let reader = try machine.startWaiting("other")
            let locked = try machine.vaultfs(["lock", machine.point])
            #expect(locked.exitCode == 9, "\(locked)")
            #expect(locked.errors.contains("the vault's store does not answer"), "\(locked)")
            let status = try machine.vaultfs(["status", machine.point, "--json"])
            #expect(status.output.contains("\"state\" : \"locked\""), "\(status)")
            machine.server.kill(SIGCONT)
            #expect(reader.wait(timeout: .seconds(20)) != nil)
            var shown = ""
            try poll("the rest of the purge, status: \(shown)", timeout: .seconds(30)) {
                shown = try machine.vaultfs(["status", machine.point, "--json"]).output
                return shown.contains("\"complete\" : true")
            }
            try machine.vaultfs(["unlock", machine.point]).succeeded()
            #expect(machine.text("file") == "content")
            try machine.vaultfs(["unmount", machine.point]).succeeded()
        }

        @Test(
            "A stalled store: unmount names its reason to wait; with --force nobody waits, and fsynced data is kept"
        )
        func forced() throws {
            let vault = try VaultUnderTest()
            let machine = try Machine(of: vault, "store")
            try machine.mountVault()
            try machine.put("content", "file")
            try Command(["sync", "\(machine.point)/file"]).run().succeeded()
            machine.server.kill(SIGSTOP)
            let reader = try machine.startWaiting("file", "nothing")
            let busy = try machine.vaultfs(["unmount", machine.point, "--timeout", "2s"])
            #expect([5, 13].contains(busy.exitCode), "\(busy)")
            if busy.exitCode == 5 {
                let forced = try machine.vaultfs(["unmount", machine.point, "--force", "--timeout", "2s"])
                #expect([13, 15].contains(forced.exitCode), "\(forced)")
            }
            #expect(try !Machine.isMounted(machine.point))
            #expect(reader.wait(timeout: .seconds(20)) != nil)
            machine.server.kill(SIGCONT)
            try poll("the mount") { (try? machine.mountVault()) != nil }
            #expect(machine.text("file") == "content")
            try machine.vaultfs(["unmount", machine.point]).succeeded()
        }

        @Test(
            "A killed daemon that cannot end takes no other mount with it", .enabled(if: Products.isRoot, "takes root"))
        func guardian() throws {
            let vault = try VaultUnderTest()
            // The sender of a request cannot be killed once bindfs has read it, so stop the bindfs below.
            let below = try Machine(of: vault, "below")
            let machine = try Machine(of: vault, "store", over: below.store)
            defer { below.server.kill(SIGCONT) }
            try machine.mountVault()
            try machine.put("content", "file")
            try Command(["sync", "\(machine.point)/file"]).run().succeeded()
            let guardian = try #require(try machine.guardian())
            let number = device(machine.point)
            below.server.kill(SIGSTOP)
            // An open file may be in the daemon's memory, but a new name is only in the store.
            _ = try machine.startWaiting("nothing")
            #expect(umount2(machine.point, Int32(MNT_FORCE | MNT_DETACH)) == 0)
            // Mount until the kernel gives the number to one of ours. Other tests mount too, so it may take a few.
            var others: [VaultUnderTest] = []
            repeat {
                others.append(try VaultUnderTest().mounted())
            } while others.count < 8 && others.last.map { device($0.mountpoint) } != number
            machine.killDaemon()
            try poll("the guardian's end") { MountUnderTest.hasEnded(guardian) }
            for other in others { #expect(try other.vaultfs(["status", other.mountpoint]).exitCode == 0) }
            for other in others { try Command(["ls", other.mountpoint]).run().succeeded() }
        }
    }
}
