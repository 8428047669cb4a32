import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// A mount as an overlay's upper layer, as for Docker.
    @Suite(.enabled(if: Products.isRoot, "takes root")) struct Overlays {
        @Test(
            "the upper layer is as on the store, also after a kill and a rekey",
            arguments: [[], ["-o", "default_permissions"]])
        func upperLayer(options: [String]) throws {
            let vault = try VaultUnderTest(on: .tmpfs)
            let (plain, lower) = ("\(vault.plain)/layer", "\(vault.plain)/lower")
            try Command(["mkdir", plain]).run().succeeded()
            try vault.mount(options)
            func run(_ directory: String, _ more: [String] = []) throws -> String {
                let program = "\(vault.account.support)/Programs/machines/overlay.sh"
                return try vault.account.run(["bash", program, directory, lower] + more).succeeded().output
            }
            let expected = try run(plain)
            #expect(expected.contains("\na c 0 0\n") && expected.contains("user.kept"), "\(expected)")
            expectSameLines(try run(vault.mountpoint), as: expected, "an overlay")
            try vault.account.run(["sync", "\(vault.mountpoint)/upper"]).succeeded()
            kill(try #require(vault.daemon), SIGKILL)
            try vault.account.run(["fusermount3", "-uz", vault.mountpoint]).succeeded()
            try vault.mount(options)
            expectSameLines(try run(vault.mountpoint, ["again"]), as: expected, "after a kill")
            try vault.unmount()
            try vault.vaultfs(["rekey", vault.vault, "--yes", "--passfile", vault.passfile]).succeeded()
            try vault.vaultfs(["verify", vault.vault, "--passfile", vault.passfile]).succeeded()
            try vault.mount(options)
            expectSameLines(try run(vault.mountpoint, ["again"]), as: expected, "after a rekey")
            try vault.unmount()
        }
    }
}
