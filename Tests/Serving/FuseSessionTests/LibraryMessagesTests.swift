import TestSupport
import Testing

@testable import FuseSession

/// libfuse's error messages, as shown to a user.
@Suite(.enabled(if: FuseDevice.isUsable, "/dev/fuse is not here")) struct LibraryMessagesTests {
    @Test("a line that libfuse logs in pieces is shown whole")
    func pieces() throws {
        let vault = try VaultUnderTest()
        #expect(throws: MountError(reason: "cannot mount: unknown option(s): `-o no_such_option'")) {
            _ = try MountInProcess(vault, .byEpoch, fuseOptions: ["no_such_option"])
        }
    }
}
