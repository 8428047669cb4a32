import TestSupport
import Testing

extension PlainMountTests {
    /// Random system calls on a vault and on a plain directory.
    @Suite struct Beside {
        @Test(
            "random calls have the same results as on the store, with kills (scripts/torture/beside is the long form)",
            arguments: [("4K", "refuse"), ("64K", "forget")])
        func calls(chunkSize: String, policy: String) throws {
            // ext4 has more rules than tmpfs, for attributes, holes and times.
            let vault = try VaultUnderTest(on: Products.isRoot ? .ext4 : .disk, initialise: false)
            // The seed is fixed, so a run does not depend on luck.
            let sizes = ["--chunk-size", chunkSize, "--policy", policy]
            try vault.mountProgram("model/beside.py", ["--seconds", "6", "--seed", "1"] + sizes)
        }
    }
}
