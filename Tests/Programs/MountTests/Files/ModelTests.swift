import TestSupport
import Testing

extension PlainMountTests {
    /// Random operations of several threads on shared files, beside a model of the files in memory.
    @Suite struct Model {
        private static let sizes = [
            ("4K", "1M"), ("64K", "1M"), ("1M", "9M"), ("4K", "64M"), ("64K", "64M"), ("1M", "64M"),
        ]

        @Test(
            "threads, locks, syncs, kills and a full disk beside a model (scripts/torture/model is the long form)",
            arguments: sizes)
        func threads(chunkSize: String, logSize: String) throws {
            // As root, the vault has its own file system, which can become full.
            let vault = try VaultUnderTest(on: Products.isRoot ? .ext4 : .disk, initialise: false)
            let events = "lock,sync,kill,copy" + (Products.isRoot ? ",full" : "")
            try vault.mountProgram(
                "model/model.py",
                [
                    "--seconds", "6", "--chunk-size", chunkSize, "--log-size", logSize, "--events", events,
                    "--policy", logSize == "64M" ? "forget" : "refuse",
                ], timeout: .seconds(180))
        }
    }
}
