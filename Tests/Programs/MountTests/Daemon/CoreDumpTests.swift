import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Memory exposed by a crash of a process with secrets.
    @Suite struct CoreDumps {
        private let vault: VaultUnderTest
        private let directory: TemporaryDirectory

        init() throws {
            vault = try VaultUnderTest()
            directory = try TemporaryDirectory()
        }

        private func run(_ command: [String]) throws -> CommandResult {
            try Command(
                [
                    "env", "-C", directory.path, "SWIFT_BACKTRACE=enable=yes", Products.python,
                    Products.program("lock/core_dump.py"),
                ]
                    + command
            ).run().succeeded()
        }

        private func expectNothingTold(_ result: CommandResult, _ signal: Int32) throws {
            #expect(result.output == "signal \(signal) core False\n", "\(result)")
            // Only the daemon's report of the mount may be there.
            #expect(result.errors.split(separator: "\n").allSatisfy { $0.contains("mounted /") }, "\(result)")
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == [])
        }

        @Test("a command that crashes with a master key in memory", arguments: [SIGSEGV, SIGABRT, SIGBUS, SIGQUIT])
        func command(signal: Int32) throws {
            try expectNothingTold(
                run([
                    "--reading", "\(signal)", vault.account.binary, "slot", "add", vault.vault, "--passfile",
                    vault.passfile, "--new-passfile",
                ]), signal)
        }

        @Test("the daemon", arguments: [SIGSEGV, SIGABRT])
        func daemon(signal: Int32) throws {
            Products.countMount()
            try expectNothingTold(
                run([
                    "--mount", vault.mountpoint, "\(signal)", vault.account.binary, "mount", "--foreground",
                    vault.vault,
                    vault.mountpoint, "--passfile", vault.passfile, "--lock-file", "\(vault.plain)/device.lock",
                ]), signal)
        }
    }
}
