import TestSupport
import Testing

extension PlainMountTests {
    /// Stores with missing abilities (scripts/system/stores is the long form).
    @Suite struct Stores {
        @Test(
            "an exFAT stick of a desktop, and sshfs with this and another owner: what the store lacks is absent as on it",
            .enabled(if: Products.isRoot, "takes root"))
        func stores() throws {
            let script = "\(Products.root)/scripts/system/stores"
            let result = try Command(
                [script, "--quick", "--binary", Products.built("vaultfs")], timeout: .seconds(300)
            ).run()
            #expect(result.exitCode == 0 && result.output.hasSuffix("\npassed\n"), "\(result)")
        }
    }
}
