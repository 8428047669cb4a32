import Daemon
import SystemPackage
import Testing
import VaultFormat

@testable import vaultfs

@Suite struct ProtectRequestTests {
    private func request(_ arguments: String...) throws -> ProtectRequest {
        try ProtectRequest(arguments.map { FilePath($0) })
    }

    @Test("a class and paths", arguments: ProtectionClass.allCases)
    func classAndPaths(protectionClass: ProtectionClass) throws {
        let request = try request(protectionClass.name, "/nonexistent/a", "none")
        #expect(request.newClass == protectionClass)
        #expect(request.paths == ["/nonexistent/a", "none"])
    }

    @Test("paths alone are shown, whether they are there or not")
    func pathsAloneAreShown() throws {
        for arguments in [["/nonexistent"], ["/nonexistent/none", "complete"], ["./none", "none"], ["/", "/dev"]] {
            let request = try ProtectRequest(arguments.map { FilePath($0) })
            #expect(request.newClass == nil)
            #expect(request.paths == arguments.map { FilePath($0) })
        }
    }

    @Test("a class without a path, and what is neither a class nor a file")
    func classWithoutPath() {
        let noPath = "protect none: no path to give this class to, and no file of that name"
        #expect(throws: CommandFailure(.usage, noPath)) { try request("none") }
        let classes = "complete, unless-open, until-first-unlock, none, inbox"
        #expect(throws: CommandFailure(.usage, "'locked' is neither a protection class (\(classes)) nor a file")) {
            try request("locked", "/")
        }
    }
}

@Suite struct MountDeviceTests {
    @Test(
        "the device of a mount as stat gives it",
        arguments: [("0:42", 42), ("8:1", 0x801), ("259:300", 0x11032C), ("x", nil), ("1", nil)] as [(String, UInt?)]
    )
    func deviceOfMountAsStat(field: String, device: UInt?) {
        let table = MountTable(parsing: Array("1 0 \(field) / /m rw - fuse.vaultfs v rw\n".utf8))
        #expect(table.entries.first?.device == device)
    }
}
