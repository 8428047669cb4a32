import TestSupport
import Testing

extension PlainMountTests {
    /// The kernel's page cache under several threads.
    @Suite struct StalePages {
        @Test("written data is seen through a mapping at once, also while others read the file")
        func seen() throws {
            let programs = try TemporaryDirectory()
            let program = programs.appending("stale_pages")
            try Command([
                "gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program,
                Products.program("posix/stale_pages.c"),
            ])
            .run().succeeded()
            let vault = try VaultUnderTest().mounted()
            try Command([program, "\(vault.mountpoint)/f", "4"], timeout: .seconds(120)).run().succeeded()
            try vault.unmount()
        }
    }
}
