import TestSupport
import Testing

extension PlainMountTests {
    /// The blocks of commands on the manual's pages. manual_blocks.py runs them, or names the test that does.
    @Suite(.enabled(if: Products.isRoot && Settings.hasOrdinaryUser, "root makes the user")) struct ManualBlocks {
        @Test("each block of commands does what the page says")
        func blocks() throws {
            let account = try Setting.userOnTmpfs.account()
            let (home, source) = (try TemporaryDirectory(), try TemporaryDirectory())
            // Copy the files, because the checkout may be in root's home, where the user cannot read it.
            let program = "Tests/Support/Programs/commands/manual_blocks.py"
            try Command([
                "bash", "-c", #"cd "$0"/../.. && cp -R --parents README.md Manual Reader "$1" "$2""#, Products.support,
                program,
                source.path,
            ]).run().succeeded()
            for directory in [home, source] { try account.own(directory.path) }
            Products.countMount()
            try account.run(
                [
                    Products.python, "\(source.path)/\(program)", "--binary", account.binary, "--directory", home.path,
                ], timeout: .seconds(300)
            ).succeeded()
        }
    }
}
