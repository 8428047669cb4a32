import Foundation
import TestSupport
import Testing

extension MountTests {
    /// A provider run again by the daemon when only the secret is missing (`mount --prewarm`).
    @Suite struct ProviderAhead {
        private let vault: VaultUnderTest
        private let provider: String
        private let lockFile: String

        init() throws {
            vault = try VaultUnderTest()
            (provider, lockFile) = ("\(vault.plain)/provider", "\(vault.plain)/device.lock")
        }

        /// Sets the provider's further behaviour: lines of a shell script that logs each run.
        private func answer(_ lines: String) throws {
            let script = "cat >> '\(provider).asked'\n\(lines)\n"
            try Data(script.utf8).write(to: URL(fileURLWithPath: provider))
        }

        private func answerWithSecret() throws {
            let secret = Data(VaultUnderTest.passphrase.utf8).base64EncodedString()
            try answer("echo '{\"secret\":{\"kind\":\"passphrase\",\"bytes\":\"\(secret)\"}}'")
        }

        private var timesAsked: Int {
            let text = (try? String(contentsOfFile: "\(provider).asked", encoding: .utf8)) ?? ""
            return text.split(separator: "\n").count
        }

        private func mount(_ options: [String]) throws {
            try answerWithSecret()
            try vault.tryMount(options, opening: ["--provider", "sh '\(provider)'"]).succeeded()
            #expect(timesAsked == 1)
        }

        private func lockFileComes() throws {
            try Data().write(to: URL(fileURLWithPath: lockFile))
            // The daemon refuses requests from the file's appearance on, but completes the lock a moment later.
            try poll("the lock") { try vault.status()["state"] as? String == "locked" }
        }

        private func lockFileGoes() throws { try FileManager.default.removeItem(atPath: lockFile) }

        private func isOpen() throws -> Bool { try Command(["ls", vault.mountpoint]).run().exitCode == 0 }

        private var options: [String] { ["--on-lock", "forget", "--lock-file", lockFile, "--prewarm"] }

        @Test("the vault is open again once the lock file is removed; after vaultfs lock only on request")
        func opensAgain() throws {
            try mount(["-o", "on_lock=forget,lock_file=\(lockFile),prewarm"])
            try lockFileComes()
            #expect(timesAsked == 1)
            try lockFileGoes()
            try poll("the unlock") { try isOpen() }
            #expect(timesAsked == 2)
            try vault.vaultfs(["lock", vault.mountpoint]).succeeded()
            try lockFileComes()
            try lockFileGoes()
            // The daemon receives this request after the removal of the file.
            expectFailure(
                try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", "/dev/null"]), .wrongSecret)
            #expect(try !isOpen() && timesAsked == 2)
            try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", vault.passfile]).succeeded()
            #expect(try isOpen())
            try vault.unmount()
        }

        @Test(
            "a provider that refuses leaves the vault locked, but a secret still opens it; one that hangs delays nothing"
        )
        func refuses() throws {
            try mount(options)
            try lockFileComes()
            try answer("echo '{\"refused\":\"no\"}'; echo done > '\(provider).done'")
            try lockFileGoes()
            try poll("the refusal") { FileManager.default.fileExists(atPath: "\(provider).done") }
            #expect(try !isOpen())
            try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", vault.passfile]).succeeded()
            try lockFileComes()
            try answer("echo $$ > '\(provider).pid'; sleep 300; echo")
            try lockFileGoes()
            var process: Int32?
            try poll("the provider") {
                let text = try? String(contentsOfFile: "\(provider).pid", encoding: .utf8)
                process = text.flatMap { Int32($0.trimmingCharacters(in: .newlines)) }
                return process != nil
            }
            let asked = try #require(process)
            // The provider has its own session, without a terminal for a prompt.
            let state = try String(contentsOfFile: "/proc/\(asked)/stat", encoding: .utf8).split(separator: " ")
            #expect(state[6] == "0" && vault.daemon.map { "\(getsid($0))" != state[5] } == true, "\(state)")
            try vault.vaultfs(["unlock", vault.mountpoint, "--passfile", vault.passfile]).succeeded()
            #expect(try isOpen() && !MountUnderTest.hasEnded(asked))
            // The unmount must not wait for the provider's timeout of 30 seconds.
            let elapsed = try ContinuousClock().measure { try vault.unmount() }
            #expect(MountUnderTest.hasEnded(asked) && elapsed < .seconds(25), "\(elapsed)")
        }

        @Test("the option requires a policy that forgets, and a provider")
        func usage() throws {
            try answerWithSecret()
            let opening = ["--provider", "sh '\(provider)'"]
            expectFailure(try vault.tryMount(["--prewarm"], opening: opening), .usage, naming: "--on-lock forget")
            expectFailure(try vault.tryMount(["-o", "prewarm"], opening: opening), .usage, naming: "--on-lock forget")
            expectFailure(try vault.tryMount(["--prewarm", "--on-lock", "forget"]), .usage, naming: "--provider")
            #expect(timesAsked == 0)
        }
    }
}
