import TestSupport
import Testing

extension PlainMountTests {
    /// The daemon's death at any moment, a full disk, a store that fails for a while: acknowledged data must survive.
    @Suite struct Losses {
        @Test("killed while it writes (scripts/torture/crash is the long form)", arguments: Settings.available)
        func kills(setting: Setting) throws {
            try setting.vault(initialise: false).mountProgram("store/crash.py", ["--kills", "6"])
        }

        @Test("a full disk", .enabled(if: Products.isRoot, "takes root, for a small tmpfs"))
        func fullDisk() throws {
            try VaultUnderTest(on: .smallTmpfs, initialise: false).mountProgram("store/full_disk.py")
        }

        @Test("a store that fails and comes back, and one that fails until the unmount")
        func outage() throws { try VaultUnderTest(initialise: false).mountProgram("store/outage.py") }
    }
}
