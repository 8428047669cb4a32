import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Where the secret of a vault may come from, beside what people type.
    @Suite struct SecretSources {
        private let vault: VaultUnderTest
        private let provider: String

        init() throws {
            vault = try VaultUnderTest()
            provider = "\(vault.store.path)/provider"
        }

        /// `verify` opens the vault without a mount.
        private func open(
            _ arguments: [String], environment: [String: String] = [:], launcher: [String] = []
        ) throws -> CommandResult {
            try Command(launcher + [vault.account.binary, "verify", vault.vault] + arguments, environment: environment)
                .run()
        }

        /// A provider that keeps what it was told and answers with `answer`, a line of a shell script.
        private func answering(_ answer: String) throws -> [String] {
            let script = "cat > \(provider).request\n\(answer)\n"
            try Data(script.utf8).write(to: URL(fileURLWithPath: provider))
            return ["--provider", "sh \(provider)"]
        }

        private static let secret =
            "{\"secret\":{\"kind\":\"passphrase\",\"bytes\":\"\(Data(VaultUnderTest.passphrase.utf8).base64EncodedString())\"}}"

        @Test("a provider is told of the vault and its slots, and gives a secret")
        func asking() throws {
            let options = try answering("echo '\(Self.secret)'")
            try open(options).succeeded()
            let text = try Data(contentsOf: URL(fileURLWithPath: "\(provider).request"))
            let request = try #require(try JSONSerialization.jsonObject(with: text) as? [String: Any])
            let slot = try #require((request["slots"] as? [[String: Any]])?.first)
            #expect(request["request"] as? String == "secret" && (request["vault"] as? String)?.count == 32)
            #expect(slot["id"] as? Int == 1 && slot["kind"] as? String == "passphrase")
            // Locked with its keys forgotten: the vault is asked for again.
            try vault.mount(["--on-lock", "forget"])
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try Command(["rm", "\(provider).request"]).run().succeeded()
            try vault.vaultfs(["unlock", vault.mountpoint] + options).succeeded()
            #expect(try Data(contentsOf: URL(fileURLWithPath: "\(provider).request")) == text)
            #expect(try Command(["ls", vault.mountpoint]).run().exitCode == 0)
        }

        @Test("a provider that refuses, fails, or says something else")
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

        @Test("a command that says too much is told so, and gets no descriptor that holds another secret")
        func commands() throws {
            expectFailure(try open(["--extpass", "head -c 300000 /dev/zero"]), .wrongSecret, naming: "has over 65536")
            expectFailure(try open(["--extpass", "yes"]), .wrongSecret, naming: "has over 65536")
            // Something stays behind: long enough to finish the output, or for ever.
            let late = "{ sleep 0.2; cat '\(vault.passfile)'; } & exit 0"
            try open(["--extpass", late]).succeeded()
            let left = try open(["--extpass", "sleep 300 & echo $! > \(provider).pid; cat '\(vault.passfile)'"])
            try Command(["sh", "-c", "kill $(cat \(provider).pid)"]).run().succeeded()
            expectFailure(left, .failure, naming: "--extpass command has ended", "keeps its output open")
            // The shell opens 4 on the passphrase before vaultfs runs.
            let launcher = ["sh", "-c", "exec \"$@\" 4<'\(vault.passfile)'", "sh"]
            let stolen = try open(["--extpass", "cat <&4"], launcher: launcher)
            #expect(stolen.exitCode == Failure.failure.rawValue, "\(stolen)")
            #expect(stolen.errors.hasSuffix("vaultfs: the --extpass command failed with exit code 2\n"), "\(stolen)")
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

        @Test("a key of the kernel's keyrings")
        func keyrings() throws {
            // In a session keyring of its own, which goes with its last process. Where keys are not to be had (as in a
            // container that filters add_key(2)), the command says so.
            let script = """
                import ctypes, os, sys
                libc = ctypes.CDLL(None, use_errno=True)
                numbers = {'x86_64': (248, 250), 'aarch64': (217, 219)}[os.uname().machine]
                def call(*words):
                    if libc.syscall(*words) < 0: sys.exit(99)
                call(numbers[1], 1, None)
                for name, secret in ((b'right', sys.argv[1].encode()), (b'long', b'x' * 5000), (b'wrong', b'w')):
                    call(numbers[0], b'user', name, secret, len(secret), -3)
                os.execv(sys.argv[2], sys.argv[2:])
                """
            let launcher = [Products.python, "-c", script, VaultUnderTest.passphrase]
            let found = try open(["--keyring", "right"], launcher: launcher)
            if found.exitCode == 99 {
                expectFailure(try open(["--keyring", "right"]), .failure, naming: "right")
                return
            }
            try found.succeeded()
            expectFailure(try open(["--keyring", "wrong"], launcher: launcher), .wrongSecret)
            expectFailure(try open(["--keyring", "long"], launcher: launcher), .wrongSecret)
            expectFailure(try open(["--keyring", "none"], launcher: launcher), .failure, naming: "none")
        }
    }
}
