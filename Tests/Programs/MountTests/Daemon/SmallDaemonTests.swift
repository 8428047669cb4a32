import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// The program on the page of the module Daemon.
    @Suite struct SmallDaemon {
        @Test("it mounts, locks, forgets its secret, takes it again, and ends")
        func secretFile() throws {
            let directory = try TemporaryDirectory()
            let (mountpoint, passfile) = (directory.appending("mount"), directory.appending("passfile"))
            let secret = mountpoint + "/secret"
            try Data("open sesame".utf8).write(to: URL(fileURLWithPath: passfile))
            let mount = "exec \"$1\" \"$2\" <\"$3\""
            defer { _ = try? Command(["fusermount3", "-uzq", mountpoint]).run() }
            try Command(["sh", "-c", mount, "sh", Products.built("secret-file"), mountpoint, passfile]).run()
                .succeeded()
            Products.countMount()
            func vaultfs(_ arguments: String...) throws -> CommandResult {
                try Command([Products.binary] + arguments + [mountpoint]).run()
            }
            #expect(try Command(["cat", secret]).run().succeeded().output == "open sesame")
            #expect(try Command(["ls", mountpoint]).run().succeeded().output == "secret\n")

            try vaultfs("lock").succeeded()
            #expect(try Command(["cat", secret]).run().errors.contains("Required key not available"))
            try vaultfs("unlock").succeeded()
            #expect(try Command(["cat", secret]).run().succeeded().output == "open sesame")

            try vaultfs("lock", "--forget").succeeded()
            let refused = try vaultfs("unlock", "--passfile", "/dev/null")
            #expect(refused.exitCode != 0, "\(refused)")
            #expect(try Command(["cat", secret]).run().exitCode == 1)
            try vaultfs("unlock", "--passfile", passfile).succeeded()
            #expect(try Command(["cat", secret]).run().succeeded().output == "open sesame")

            let again = try Command(["sh", "-c", mount, "sh", Products.built("secret-file"), mountpoint, passfile])
                .run()
            #expect(
                again.exitCode == 5 && again.errors.hasPrefix("secret-file: \(mountpoint) is mounted already"),
                "\(again)")
            try vaultfs("unmount").succeeded()
            #expect(!FileManager.default.fileExists(atPath: mountpoint))
        }
    }
}
