import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Sources of a vault's secret other than typed input.
    @Suite struct SecretSources {
        private let vault: VaultUnderTest
        private let provider: String

        init() throws {
            vault = try VaultUnderTest()
            provider = "\(vault.store.path)/provider"
        }

        /// Opens the vault without a mount, with `verify`.
        private func open(
            _ arguments: [String], environment: [String: String] = [:], launcher: [String] = []
        ) throws -> CommandResult {
            try Command(launcher + [vault.account.binary, "verify", vault.vault] + arguments, environment: environment)
                .run()
        }

        /// Makes a provider that keeps its input and replies with `answer`, a line of a shell script.
        private func answering(_ answer: String) throws -> [String] {
            let script = "cat > \(provider).request\n\(answer)\n"
            try Data(script.utf8).write(to: URL(fileURLWithPath: provider))
            return ["--provider", "sh \(provider)"]
        }

        private static let secret =
            "{\"secret\":{\"kind\":\"passphrase\",\"bytes\":\"\(Data(VaultUnderTest.passphrase.utf8).base64EncodedString())\"}}"

        @Test("a provider gets the vault and its slots, and returns a secret")
        func asking() throws {
            let keyfile = "\(vault.store.path)/keyfile"
            try Data(repeating: 7, count: 64).write(to: URL(fileURLWithPath: keyfile))
            let lease = ["--new-keyfile", keyfile, "--label", "Ada", "--expires", "2999-01-01T00:00:00Z"]
            try vault.vaultfs(["slot", "add", vault.vault, "--passfile", vault.passfile] + lease).succeeded()
            let options = try answering("echo '\(Self.secret)'")
            try open(options).succeeded()
            let text = try Data(contentsOf: URL(fileURLWithPath: "\(provider).request"))
            let request = try #require(try JSONSerialization.jsonObject(with: text) as? [String: Any])
            let slots = try #require(request["slots"] as? [[String: Any]])
            let slot = try #require(slots.first)
            #expect(request["request"] as? String == "secret" && (request["vault"] as? String)?.count == 32)
            #expect(slot["id"] as? Int == 1 && slot["kind"] as? String == "passphrase")
            #expect(slot["expires"] == nil && slots.last?["label"] as? String == "Ada")
            #expect(slots.last?["expires"] as? String == "2999-01-01T00:00:00Z")
            // This lock forgets the keys, so the unlock needs the vault's secret again.
            try vault.mount(["--on-lock", "forget"])
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try Command(["rm", "\(provider).request"]).run().succeeded()
            try vault.vaultfs(["unlock", vault.mountpoint] + options).succeeded()
            #expect(try Data(contentsOf: URL(fileURLWithPath: "\(provider).request")) == text)
            #expect(try Command(["ls", vault.mountpoint]).run().exitCode == 0)
        }

        @Test("a provider that refuses, fails, or prints something else")
        func refusing() throws {
            let refusal = try open(answering("echo '{\"refused\":\"no \\u001b[31mcard\\u202e\"}'"))
            expectFailure(refusal, .wrongSecret, naming: "refused: no \\u{1b}[31mcard\\u{202e}")
            expectFailure(try open(answering("exit 3")), .failure, naming: "exit code 3")
            expectFailure(try open(answering("echo nonsense")), .failure, naming: "--provider")
            expectFailure(try open(answering("exec >&-")), .wrongSecret, naming: "is empty")
            let wrong = Self.secret.replacingOccurrences(of: "\"Y2", with: "\"Y3")
            expectFailure(try open(answering("echo '\(wrong)'")), .wrongSecret)
            expectFailure(try open(answering("echo '\(Self.secret)'") + ["--keyfile", "/k"]), .usage)
            expectFailure(
                try vault.vaultfs(["init", "\(vault.store.path)/new", "--provider", "true"]), .usage, naming: "init")
        }

        @Test("a command that prints too much gets an error, and no descriptor that contains another secret")
        func commands() throws {
            expectFailure(try open(["--extpass", "head -c 300000 /dev/zero"]), .wrongSecret, naming: "has over 65536")
            expectFailure(try open(["--extpass", "yes"]), .wrongSecret, naming: "has over 65536")
            // A process stays after its parent: long enough to finish the output, or for ever.
            let late = "{ sleep 0.2; cat '\(vault.passfile)'; } & exit 0"
            try open(["--extpass", late]).succeeded()
            let left = try open(["--extpass", "sleep 300 & echo $! > \(provider).pid; cat '\(vault.passfile)'"])
            try Command(["sh", "-c", "kill $(cat \(provider).pid)"]).run().succeeded()
            expectFailure(left, .failure, naming: "--extpass command has ended", "keeps its output open")
            // The shell opens descriptor 4 on the passphrase before vaultfs runs.
            let launcher = ["sh", "-c", "exec \"$@\" 4<'\(vault.passfile)'", "sh"]
            let stolen = try open(["--extpass", "cat <&4"], launcher: launcher)
            #expect(stolen.exitCode == Failure.failure.rawValue, "\(stolen)")
            #expect(stolen.errors.hasSuffix("vaultfs: the --extpass command failed with exit code 2\n"), "\(stolen)")
        }

        /// Makes slots of the other kinds.
        /// - Returns: a file with a recovery key, a keyfile, and the strings that must not appear anywhere.
        private func addSlots() throws -> (recovery: String, keyfile: String, secrets: [String]) {
            let (keyfile, recovery) = ("\(vault.store.path)/keyfile", "\(vault.store.path)/recovery")
            let key = "forty bytes of a keyfile that opens this"
            try Data(key.utf8).write(to: URL(fileURLWithPath: keyfile))
            let adding = ["slot", "add", vault.vault, "--passfile", vault.passfile]
            try vault.vaultfs(adding + ["--new-keyfile", keyfile]).succeeded()
            let made = try vault.vaultfs(adding + ["--new-recovery-key", "--json"]).succeeded().fields()
            let text = try #require(made["recoveryKey"] as? String)
            try Data(text.utf8).write(to: URL(fileURLWithPath: recovery))
            let phrase = VaultUnderTest.passphrase
            let secrets = [phrase, Data(phrase.utf8).base64EncodedString(), key, text]
            return (recovery, keyfile, secrets + text.split(separator: "-").map(String.init))
        }

        /// Returns all visible data of the processes that serve the mount.
        private func seen() throws -> Data {
            var seen = Data()
            for pid in try FileManager.default.contentsOfDirectory(atPath: "/proc").compactMap({ Int32($0) }) {
                func read(_ name: String) -> Data {
                    (try? Data(contentsOf: URL(fileURLWithPath: "/proc/\(pid)/\(name)"))) ?? Data()
                }
                let line = read("cmdline")
                if line.range(of: Data(vault.mountpoint.utf8)) != nil { seen += line + read("environ") }
            }
            return seen
        }

        @Test("from any source, the secret is not on the daemon's command line, in its environment, or in its log")
        func nothingSecret() throws {
            let (recovery, keyfile, secrets) = try addSlots()
            let directory = vault.store.path
            for (opening, launcher) in [
                (["--passfile", vault.passfile], []), (["--keyfile", keyfile], []),
                (["--passfile", "/dev/fd/4"], ["sh", "-c", "exec \"$@\" 4<'\(vault.passfile)'", "sh"]),
                (["--extpass", "cat '\(vault.passfile)'"], []), (["--recovery-key", "--passfile", recovery], []),
                (["--credential", "passfile"], ["env", "CREDENTIALS_DIRECTORY=\(directory)"]),
                (["--keyring", "right"], Self.withKeyring), (try answering("echo '\(Self.secret)'"), []),
            ] {
                func expectNothing(_ data: Data, _ place: String) {
                    for secret in secrets {
                        #expect(data.range(of: Data(secret.utf8)) == nil, "\(opening[0]): \(place)")
                    }
                }
                let command = launcher + [vault.account.binary, "mount", "--foreground", vault.vault, vault.mountpoint]
                let daemon = try Command(command + opening, environment: vault.environment).start()
                defer { daemon.kill(SIGKILL) }
                try poll("the mount, or the command's end") {
                    if let code = daemon.wait(timeout: .zero) { return code == 99 }
                    return try vault.isMounted()
                }
                // This machine has no keyrings.
                if daemon.wait(timeout: .zero) == 99 { continue }
                // An unmount before the first answer counts as a failed mount.
                try Command(["stat", vault.mountpoint]).run().succeeded()
                Products.countMount()
                let shown = try seen()
                #expect(
                    shown.range(of: Data("--foreground\0".utf8)) != nil && shown.range(of: Data("PATH=".utf8)) != nil)
                expectNothing(shown, "command line and environment")
                try vault.vaultfs(["unmount", vault.mountpoint]).succeeded()
                #expect(daemon.wait(timeout: .seconds(20)) == 0)
                expectNothing(Data((daemon.output + daemon.errors).utf8), "log")
            }
            // In the background another process serves, and the command passes the key to it.
            try vault.mount()
            let shown = try seen()
            #expect(shown.range(of: Data("PATH=".utf8)) != nil)
            for secret in secrets { #expect(shown.range(of: Data(secret.utf8)) == nil) }
            try vault.unmount()
        }

        @Test("prompted on a terminal: wrong, interrupted, closed, and right")
        func terminal() throws {
            let errors = "\(vault.store.path)/errors"
            func answer(
                _ answer: String, times: Int = 1, _ command: [String]
            ) throws -> (shown: String, errors: String) {
                let answers = Array(repeating: "Passphrase: =\(answer)", count: times)
                let program = [Products.python, Products.program("commands/terminal.py"), errors] + answers + ["--"]
                let result = try Command(program + [vault.account.binary] + command, environment: vault.environment)
                    .run()
                return (try result.succeeded().output, try String(contentsOfFile: errors, encoding: .utf8))
            }
            let faults = [
                ("battery staple", 3, 4, "wrong passphrase"), ("^C", 1, 130, ""),
                ("^D", 3, 4, "the passphrase is empty"),
                ("gone", 1, 1, "the terminal has hung up: Input/output error"),
            ]
            for (words, tries, code, said) in faults {
                let (shown, errors) = try answer(words, times: tries, ["mount", vault.vault, vault.mountpoint])
                #expect(shown.hasSuffix("exit \(code)\n") && !shown.contains("echo off"), "\(words): \(shown)\(errors)")
                #expect(said.isEmpty ? errors.isEmpty : errors.contains(said), "\(words): \(errors)")
                #expect(try !vault.isMounted())
            }
            try vault.mount(["--on-lock", "forget"])
            try Data("x".utf8).write(to: URL(fileURLWithPath: vault.mountpoint + "/file"))
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            for (words, tries, code, said) in faults {
                let (shown, errors) = try answer(words, times: tries, ["unlock", vault.mountpoint])
                #expect(shown.hasSuffix("exit \(code)\n") && !shown.contains("echo off"), "\(words): \(shown)\(errors)")
                #expect(said.isEmpty ? errors.isEmpty : errors.contains(said), "\(words): \(errors)")
                #expect(try Command(["cat", vault.mountpoint + "/file"]).run().exitCode != 0)
            }
            // The command waits as long as the daemon demands after three wrong secrets.
            let (shown, said) = try answer(VaultUnderTest.passphrase, ["unlock", vault.mountpoint])
            #expect(shown.hasSuffix("echo on\nexit 0\n") && !shown.contains("horse"), "\(shown)\(said)")
            #expect(try Command(["cat", vault.mountpoint + "/file"]).run().succeeded().output == "x")
            try vault.unmount()
        }

        @Test("unlock says that it has not checked a secret that the daemon did not need", arguments: [true, false])
        func notNeeded(isLocked: Bool) throws {
            try vault.mount()
            if isLocked { try vault.vaultfs(["lock", vault.mountpoint]).succeeded() }
            let state = isLocked ? "unlocked" : "is not locked"
            let result = try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", "/dev/fd/0"], input: "wrong")
                .succeeded()
            #expect(result.output == "\(vault.mountpoint): \(state); it had its keys, so the secret was not checked\n")
            try vault.vaultfs(["lock", "--forget", vault.mountpoint]).succeeded()
            let needed = try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", vault.passfile]).succeeded()
            #expect(needed.output == "\(vault.mountpoint): unlocked\n")
            try vault.unmount()
        }

        @Test("a client waits the second that the daemon demands after a wrong secret, but not long")
        func waiting() throws {
            try vault.mount(["--on-lock", "forget"])
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            let unlock = ["unlock", vault.mountpoint, "--passfile", "/dev/fd/0"]
            let start = ContinuousClock.now
            for _ in 0..<4 { expectFailure(try vault.vaultfs(unlock, input: "wrong"), .wrongSecret) }
            // The daemon has demanded 1 + 2 + 4 s.
            #expect(ContinuousClock.now - start > .seconds(6))
            expectFailure(try vault.vaultfs(unlock, input: "wrong"), .failure, naming: "too many tries: wait 8 s")
            try vault.unmount()
        }

        @Test("a systemd credential")
        func credentials() throws {
            let directory = vault.store.path
            try open(["--credential", "passfile"], environment: ["CREDENTIALS_DIRECTORY": directory]).succeeded()
            let mount = ["mount", vault.vault, vault.mountpoint, "-o", "credential=passfile"]
            try Command([vault.account.binary] + mount, environment: ["CREDENTIALS_DIRECTORY": directory]).run()
                .succeeded()
            Products.countMount()
            try vault.unmount()
            expectFailure(
                try open(["--credential", "other"], environment: ["CREDENTIALS_DIRECTORY": directory]), .failure,
                naming: "\(directory)/other")
            expectFailure(
                try open(["--credential", "passfile"], launcher: ["env", "-u", "CREDENTIALS_DIRECTORY"]), .failure,
                naming: "CREDENTIALS_DIRECTORY")
            for name in ["", "..", "a/b"] { expectFailure(try open(["--credential", name]), .usage) }
        }

        /// Runs a command in its own session keyring, which ends with its last process. It exits with code 99 if keys
        /// are not available, for example in a container that filters add_key(2).
        private static let withKeyring = [
            Products.python, "-c",
            """
            import ctypes, os, sys
            libc = ctypes.CDLL(None, use_errno=True)
            numbers = {'x86_64': (248, 250), 'aarch64': (217, 219)}[os.uname().machine]
            def call(*words):
                if libc.syscall(*words) < 0: sys.exit(99)
            call(numbers[1], 1, None)
            for name, secret in ((b'right', sys.argv[1].encode()), (b'long', b'x' * 5000), (b'wrong', b'w'),
                                 (b'line', b'\\n'), (b'bytes', b'\\xff\\x80\\xc3\\x28')):
                call(numbers[0], b'user', name, secret, len(secret), -3)
            os.execvp(sys.argv[2], sys.argv[2:])
            """, VaultUnderTest.passphrase,
        ]

        @Test("a key in the kernel's keyrings")
        func keyrings() throws {
            let launcher = Self.withKeyring
            let found = try open(["--keyring", "right"], launcher: launcher)
            if found.exitCode == 99 {
                expectFailure(try open(["--keyring", "right"]), .failure, naming: "right")
                return
            }
            try found.succeeded()
            expectFailure(try open(["--keyring", "wrong"], launcher: launcher), .wrongSecret)
            expectFailure(try open(["--keyring", "long"], launcher: launcher), .wrongSecret)
            expectFailure(try open(["--keyring", "line"], launcher: launcher), .wrongSecret, naming: "is empty")
            expectFailure(
                try open(["--keyring", "bytes"], launcher: launcher), .wrongSecret, naming: "wrong passphrase")
            expectFailure(try open(["--keyring", "none"], launcher: launcher), .failure, naming: "none")
        }
    }
}
