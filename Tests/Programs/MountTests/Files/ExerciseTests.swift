import Foundation
import TestSupport
import Testing

extension MountTests {
    /// Random operations beside a model, and the kernel's read-ahead.
    @Suite struct Exercise {
        @Test("random operations on a file give what a model gives", arguments: Settings.accounts)
        func exercise(setting: Setting) throws {
            let vault = try setting.vault().mounted()
            try vault.account.program("model/exercise.py", ["\(vault.mountpoint)/file"], timeout: .seconds(120))
                .succeeded()
            try vault.unmount()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
        }

        @Test("a larger read-ahead", .enabled(if: Products.isRoot, "takes root"), arguments: ["--read-ahead", "-o"])
        func readAhead(form: String) throws {
            let vault = try VaultUnderTest().mounted([form, form == "-o" ? "read-ahead=512K" : "512K"])
            var status = stat()
            #expect(stat(vault.mountpoint, &status) == 0)
            let (major, minor) = (status.st_dev >> 8 & 0xFFF, status.st_dev & 0xFF | status.st_dev >> 12 & 0xFFF00)
            let file = "/sys/class/bdi/\(major):\(minor)/read_ahead_kb"
            #expect(try String(contentsOfFile: file, encoding: .utf8) == "512\n")
        }

        @Test(
            "a read-ahead that the kernel refuses is reported",
            .enabled(if: Settings.hasOrdinaryUser, "needs an ordinary user"))
        func unchangedReadAhead() throws {
            let vault = try VaultUnderTest(try #require(Account.ordinary))
            let result = try vault.tryMount(["--read-ahead", "512K"])
            #expect(result.exitCode == 0 && result.errors.contains("warning: read-ahead stays as it is"), "\(result)")
            try vault.unmount()
        }

        @Test("a read-ahead out of range", arguments: [["--read-ahead", "1K"], ["-o", "read_ahead=x"]])
        func refused(arguments: [String]) throws {
            let result = try VaultUnderTest().tryMount(arguments)
            #expect(result.exitCode == 2, "\(arguments): \(result)")
        }
    }
}
