import TestSupport
import Testing

extension PlainMountTests {
    /// The daemon's death at any moment, a full disk, a store that fails for a while: acknowledged data must survive.
    @Suite struct Losses {
        @Test("killed while it writes (scripts/torture/crash is the long form)", arguments: Settings.available)
        func kills(setting: Setting) throws {
            let vault = try setting.vault(initialise: false)
            let result = try vault.account.run(
                [
                    Products.python, "\(vault.account.support)/Programs/crash.py", "--binary", vault.account.binary,
                    "--directory", vault.plain, "--kills", "6",
                ],
                environment: vault.environment, timeout: .seconds(120))
            #expect(result.exitCode == 0, "\(result.output)\n\(result.errors)")
        }

        @Test("a full disk", .enabled(if: Products.isRoot, "takes root, for a small tmpfs"))
        func fullDisk() throws {
            let vault = try VaultUnderTest(.current, on: .smallTmpfs, initialise: false)
            let result = try vault.account.run(
                [
                    Products.python, "\(vault.account.support)/Programs/full_disk.py", "--binary", vault.account.binary,
                    "--directory", vault.plain,
                ],
                environment: vault.environment, timeout: .seconds(120))
            #expect(result.exitCode == 0, "\(result.output)\n\(result.errors)")
        }

        @Test("a store that fails and comes back, and one that fails until the unmount")
        func outage() throws {
            let vault = try VaultUnderTest(initialise: false)
            let result = try vault.account.run(
                [
                    Products.python, "\(vault.account.support)/Programs/outage.py", "--binary", vault.account.binary,
                    "--directory", vault.plain,
                ],
                environment: vault.environment, timeout: .seconds(120))
            #expect(result.exitCode == 0, "\(result.output)\n\(result.errors)")
        }
    }
}
