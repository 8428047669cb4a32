import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Keys from a command: the requests that run it, the time, and the programs that wait for it.
    @Suite struct ViewKeyCommands {
        private static let iv = ["--iv", ViewCase.vector]

        /// Makes a view of `file-20000`, and of copies under these names. Its key command writes a line for each run.
        /// For names with `fail` it fails, and for names with `wrong` it prints another key, both until `permit`
        /// exists. For names with `slow` it hangs.
        private func view(_ names: [String], _ arguments: [String] = []) throws -> ViewUnderTest {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            for name in names {
                try Command(["install", "-D", "\(view.source)/file-20000", "\(view.source)/\(name)"]).run().succeeded()
            }
            let script = """
                echo "$VAULTFS_KEY_PATH" >> \(view.plain)/asked
                case $VAULTFS_KEY_PATH in
                *slow*) echo $$ >> \(view.plain)/hanging; sleep 60 & echo $! >> \(view.plain)/hanging; wait;;
                *fail*) test -e \(view.plain)/permit || exit 3;;
                *wrong*) test -e \(view.plain)/permit || { head -c 16 /dev/zero; exit; };;
                esac
                cat \(view.keys)/binary
                """
            try view.mount("cbc", Self.iv + ["--key-command", script] + arguments)
            return view
        }

        private func lines(_ file: String, _ view: ViewUnderTest) -> [String] {
            let text = (try? String(contentsOfFile: "\(view.plain)/\(file)", encoding: .utf8)) ?? ""
            return text.split(separator: "\n").map(String.init)
        }

        private func compare(_ name: String, _ view: ViewUnderTest) throws {
            try view.account.run(
                ["cmp", "\(view.mountpoint)/\(name)", "\(view.originals)/file-20000"], timeout: .seconds(10)
            ).succeeded()
        }

        private func open(_ names: [String], _ view: ViewUnderTest) throws -> RunningProcess {
            let process = try view.account.command(
                [Products.python, "\(view.account.support)/Programs/views/view_open.py"]
                    + names.map { "\(view.mountpoint)/\($0)" }
            ).start()
            try poll("the threads") { process.output.contains("waiting") }
            return process
        }

        @Test("it gets the path, and runs once for each file")
        func asked() throws {
            let view = try view(["a/b/of a name"])
            for _ in 1...2 {
                try compare("a/b/of a name", view)
                try compare("file-20000", view)
            }
            #expect(lines("asked", view) == ["a/b/of a name", "file-20000"])
            try view.unmount()
        }

        @Test("its failure is an error at open, and it runs again at the next open")
        func failure() throws {
            let view = try view(["failing"])
            // The listing prefetches keys, which must fail too.
            try view.account.run(["ls", view.mountpoint]).succeeded()
            try poll("the keys of a listed directory") { try view.problems().contains { $0.hasPrefix("failing: ") } }
            for _ in 1...2 {
                let result = try view.account.run(["cat", "\(view.mountpoint)/failing"])
                #expect(result.exitCode == 1 && result.errors.contains("Required key not available"), "\(result)")
                let problems = try view.problems()
                #expect(problems.count == 1 && problems[0].contains("exit code 3"), "\(problems)")
            }
            try compare("file-20000", view)
            try Command(["touch", "\(view.plain)/permit"]).run().succeeded()
            try compare("failing", view)
            #expect(try view.problems().isEmpty)
            #expect(lines("asked", view).filter { $0 == "failing" }.count == 4)
            try view.unmount()
        }

        @Test("a wrong key is requested again at the next open, and may then be right")
        func putRight() throws {
            let view = try view(["wrong"])
            for _ in 1...2 {
                #expect(try view.account.run(["cat", "\(view.mountpoint)/wrong"]).exitCode == 1)
            }
            #expect(try view.problems().contains { $0.hasPrefix("wrong: ") })
            try compare("file-20000", view)
            try Command(["touch", "\(view.plain)/permit"]).run().succeeded()
            try compare("wrong", view)
            try compare("wrong", view)
            #expect(try view.problems().isEmpty)
            #expect(lines("asked", view).filter { $0 == "wrong" }.count == 3)
            // The right key was requested only once.
            #expect(lines("asked", view).filter { $0 == "file-20000" }.count == 1)
            try view.unmount()
        }

        @Test("a command that hangs delays only the programs that need its key")
        func hanging() throws {
            let slow = (1...20).map { "slow-\($0)" }
            let view = try view(slow + ["quick", "below/other"])
            try compare("quick", view)
            let opener = try open(slow, view)
            defer { opener.kill(SIGKILL) }
            try poll("the commands") { lines("hanging", view).count >= 2 * slow.count }
            // Listings, open files, and new opens must work.
            let direct = ["dd", "if=\(view.mountpoint)/quick", "of=\(view.plain)/read", "iflag=direct", "bs=4096"]
            try view.account.run(direct, timeout: .seconds(10)).succeeded()
            try view.account.run(["ls", "-lR", view.mountpoint], timeout: .seconds(10)).succeeded()
            try compare("below/other", view)
            #expect(opener.output == "waiting\n")
            // A lock must not wait, so the waiting programs get an error.
            try view.vaultfs(["lock", view.mountpoint], timeout: .seconds(10)).succeeded()
            try view.vaultfs(["unlock", view.mountpoint], timeout: .seconds(10)).succeeded()
            try compare("quick", view)
            try end(view, opener)
        }

        /// Ends the waiting programs, and then expects a prompt unmount.
        private func end(_ view: ViewUnderTest, _ opener: RunningProcess) throws {
            opener.kill(SIGKILL)
            #expect(opener.wait(timeout: .seconds(30)) == 128 + SIGKILL)
            try view.vaultfs(["unmount", view.mountpoint], timeout: .seconds(10)).succeeded()
            try expectEnd(of: view)
        }

        @Test("a program that waits for a key can be killed at once", arguments: [SIGKILL, SIGINT, SIGTERM])
        func killed(signal: Int32) throws {
            let view = try view(["slow"])
            let opener = try open(["slow"], view)
            try poll("the command") { lines("hanging", view).count == 2 }
            opener.kill(signal)
            #expect(opener.wait(timeout: .seconds(30)) == 128 + signal)
            try view.vaultfs(["unmount", view.mountpoint], timeout: .seconds(10)).succeeded()
            try expectEnd(of: view)
        }

        /// Expects the daemon and the commands to end.
        private func expectEnd(of view: ViewUnderTest) throws {
            try view.awaitDaemonsEnd(timeout: .seconds(10))
            let processes = lines("hanging", view).compactMap { pid_t($0) }
            #expect(!processes.isEmpty)
            for process in processes { try poll("the command's end") { MountUnderTest.hasEnded(process) } }
        }

        @Test("an unmount ends commands that hang")
        func unmount() throws {
            let view = try view((1...10).map { "slow-\($0)" })
            // Only a listing has started them, so no program waits.
            try view.account.run(["ls", view.mountpoint]).succeeded()
            try poll("the commands") { lines("hanging", view).count == 8 }
            try view.vaultfs(["unmount", view.mountpoint], timeout: .seconds(10)).succeeded()
            try expectEnd(of: view)
        }

        @Test("a lazy unmount, or SIGTERM, releases programs that wait in open(2)", arguments: [true, false])
        func ended(lazily: Bool) throws {
            let view = try view(["slow-1", "slow-2"])
            let opener = try open(["slow-1", "slow-2"], view)
            defer { opener.kill(SIGKILL) }
            try poll("the commands") { lines("hanging", view).count == 4 }
            if lazily {
                try view.account.run(["fusermount3", "-uz", view.mountpoint]).succeeded()
                opener.kill(SIGKILL)
            } else {
                kill(try #require(view.daemon), SIGTERM)
            }
            #expect(opener.wait(timeout: .seconds(10)) != nil)
            try expectEnd(of: view)
        }

        @Test("a lock that forgets ends commands that hang, and the waiting programs get an error")
        func forgotten() throws {
            let view = try view(["slow-1", "slow-2", "quick"], ["--on-lock", "forget"])
            try compare("quick", view)
            let opener = try open(["slow-1", "slow-2"], view)
            defer { opener.kill(SIGKILL) }
            try poll("the commands") { lines("hanging", view).count == 4 }
            try view.vaultfs(["lock", view.mountpoint], timeout: .seconds(10)).succeeded()
            #expect(opener.wait(timeout: .seconds(10)) == 0)
            #expect(opener.output.components(separatedBy: "Required key not available").count == 3)
            for process in lines("hanging", view).compactMap({ pid_t($0) }) {
                try poll("the command's end") { MountUnderTest.hasEnded(process) }
            }
            try view.vaultfs(["unlock", view.mountpoint], timeout: .seconds(10)).succeeded()
            // The lock has forgotten this key, so the command runs again.
            try compare("quick", view)
            #expect(lines("asked", view).filter { $0 == "quick" }.count == 2)
            try view.unmount()
        }

        @Test("--prewarm requests all keys before any file is opened")
        func prewarm() throws {
            let view = try view(["a/b/c", "d"], ["--prewarm"])
            try poll("the keys") { lines("asked", view).count == 3 }
            #expect(lines("asked", view).sorted() == ["a/b/c", "d", "file-20000"])
            // Sizes are then exact before any open. The key arrives shortly after its command was started.
            for name in ["a/b/c", "d"] {
                try poll("the size") {
                    try view.account.run(["stat", "-c", "%s", "\(view.mountpoint)/\(name)"]).output == "20000\n"
                }
            }
            try compare("a/b/c", view)
            #expect(lines("asked", view).count == 3)
            try view.unmount()
        }

        @Test("keys in files do not wait for the key command")
        func filesMeanwhile() throws {
            let view = try ViewUnderTest().made("cbc", ["aes-128-cbc", "pkcs7", "20000"])
            let slow = (1...40).map { "slow-\($0)" }
            let copies = slow.map { "cp source/file-20000 source/\($0)" }.joined(separator: "\n")
            try view.account.run(["sh", "-ec", copies + "\ncp keys/binary source/key"], directory: view.store.path)
                .succeeded()
            let manifest = #"{"format": "cbc", "files": {"file-20000": {"key": "key"}}}"#
            try Data(manifest.utf8).write(to: URL(fileURLWithPath: "\(view.source)/view.json"))
            try view.mount("cbc", Self.iv + ["--key-command", "echo $$ >> \(view.plain)/hanging; exec sleep 60"])
            let opener = try open(slow, view)
            defer { opener.kill(SIGKILL) }
            try poll("the commands") { lines("hanging", view).count >= 8 }
            try compare("file-20000", view)
            try end(view, opener)
        }

        @Test("view.json: keys, vectors and chunk sizes of single files")
        func manifest() throws {
            let view = try ViewUnderTest()
            try view.program("views/view_manifest.py", [view.account.binary, view.store.path, view.lockFile])
                .succeeded()
        }
    }
}
