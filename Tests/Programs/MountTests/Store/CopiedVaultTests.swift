import Foundation
import TestSupport
import Testing

extension PlainMountTests {
    /// Copies of a mounted vault, with the living daemon's record in `vaultfs.lock`.
    @Suite struct CopiedVaults {
        /// Makes a mounted vault with a file.
        private func vault(_ setting: Setting) throws -> VaultUnderTest {
            let vault = try setting.vault().mounted()
            try write("first", vault.mountpoint, vault)
            return vault
        }

        private func write(_ text: String, _ mountpoint: String, _ vault: VaultUnderTest) throws {
            try vault.account.run(["sh", "-ec", "echo \(text) >$1/file; sync $1/file", "sh", mountpoint]).succeeded()
        }

        private func read(_ mountpoint: String, _ vault: VaultUnderTest) throws -> String {
            try vault.account.run(["cat", "\(mountpoint)/file"]).succeeded().output
        }

        @Test("such a copy mounts, verifies and exports, beside the original", arguments: Settings.available)
        func copy(setting: Setting) throws { try checkCopy(beside: try vault(setting)) }

        @Test("the same in a container's overlayfs", .enabled(if: Products.isRoot, "takes root"))
        func copyOnOverlay() throws {
            let vault = try VaultUnderTest(on: .overlay).mounted()
            try write("first", vault.mountpoint, vault)
            try checkCopy(beside: vault)
        }

        private func checkCopy(beside vault: VaultUnderTest) throws {
            let (copy, other, out) = ("\(vault.plain)/copy", "\(vault.plain)/other", "\(vault.plain)/out")
            try vault.account.run(["cp", "-a", vault.vault, copy]).succeeded()
            let opening = ["--passfile", vault.passfile]
            try vault.vaultfs(["verify", copy] + opening).succeeded()
            try vault.vaultfs(["export", copy, out] + opening).succeeded()
            #expect(try read(out, vault) == "first\n")
            #expect(try !vault.vaultfs(["info", copy]).succeeded().output.contains("by process"))
            try vault.account.run(["mkdir", other]).succeeded()
            try vault.vaultfs(["mount", copy, other] + opening).succeeded()
            defer { _ = try? vault.account.run(["fusermount3", "-uz", other]) }
            #expect(try read(other, vault) == "first\n")
            try write("second", other, vault)
            try write("third", vault.mountpoint, vault)
            #expect(try read(other, vault) == "second\n")
            try vault.vaultfs(["unmount", other]).succeeded()
            try vault.unmount()
            for path in [copy, vault.vault] { try vault.vaultfs(["verify", path] + opening).succeeded() }
        }

        @Test("the same vault by another mount of its store is refused", arguments: ["mount --bind", "bindfs -n"])
        func samePlace(mount: String) throws {
            guard let setting = Settings.accounts.first(where: { $0.isRoot || !mount.hasPrefix("mount") }) else {
                return
            }
            let vault = try vault(setting)
            let (again, other) = ("\(vault.plain)/again", "\(vault.plain)/other")
            try vault.account.run(["mkdir", again, other]).succeeded()
            try vault.account.run(mount.split(separator: " ").map(String.init) + [vault.vault, again]).succeeded()
            defer { _ = try? vault.account.run(["sh", "-c", "umount -l $1 || fusermount3 -uz $1", "sh", again]) }
            let mounting = ["mount", again, other, "--passfile", vault.passfile]
            expectFailure(try vault.vaultfs(mounting), .inUse, naming: "\(again)")
            // The record alone must suffice for the refusal.
            expectFailure(try vault.vaultfs(["rekey", again, "--passfile", vault.passfile, "--yes"]), .inUse)
            try write("second", vault.mountpoint, vault)
            try vault.unmount()
            try vault.vaultfs(mounting).succeeded()
            #expect(try read(other, vault) == "second\n")
            try vault.vaultfs(["unmount", other]).succeeded()
        }
    }
}
