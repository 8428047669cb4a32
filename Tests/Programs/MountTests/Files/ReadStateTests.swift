import TestSupport
import Testing

extension PlainMountTests {
    /// Reads during changes of the same file.
    @Suite struct ReadStates {
        /// `scripts/torture/reads` runs it longer, and now and then removes the log too.
        @Test(
            "Log-7: a read returns no state that was replaced before it began, also beside cuts, holes and checkpoints",
            arguments: ["direct", "buffered"], ["4K", "64K"])
        func current(mode: String, chunkSize: String) throws {
            let programs = try TemporaryDirectory()
            let program = programs.appending("read_states")
            try Command([
                "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
                Products.program("posix/read_states.c"),
            ])
            .run().succeeded()
            let vault = try VaultUnderTest(arguments: ["--chunk-size", chunkSize]).mounted()
            let log = chunkSize == "4K" ? [] : ["\(vault.vault)/vaultfs.log"]
            try Command([program, "\(vault.mountpoint)/f", "3", mode, "1"] + log, timeout: .seconds(120)).run()
                .succeeded()
            try vault.unmount()
        }
    }
}
