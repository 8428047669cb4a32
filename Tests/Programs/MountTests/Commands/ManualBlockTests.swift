import TestSupport
import Testing

extension PlainMountTests {
    /// The blocks of commands on the pages of the manual. manual_blocks.py runs them, or names the test that does.
    @Suite(.enabled(if: Products.isRoot && Settings.hasOrdinaryUser, "root makes the user")) struct ManualBlocks {
        @Test("each block of commands does what the page says")
        func blocks() throws {
            let account = try Setting.userOnTmpfs.account()
            let home = try TemporaryDirectory()
            try account.own(home.path)
            Products.countMount()
            try account.run(
                [
                    Products.python, Products.program("manual_blocks.py"), "--binary", account.binary, "--directory",
                    home.path,
                ], timeout: .seconds(300)
            ).succeeded()
        }
    }
}
