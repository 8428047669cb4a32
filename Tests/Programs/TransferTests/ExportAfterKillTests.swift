import Foundation
import Glibc
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultFileSystem
import VaultFormat
import VaultStore

@testable import Transfer

/// `vaultfs export` of a vault after its daemon was killed.
@Suite(.timeLimit(.minutes(60))) struct ExportAfterKillTests {
    @Test("a file with changes in the log is exported with them, and an export that goes on finds it complete")
    func logged() throws {
        let place = try TransferPlace()
        try place.make("tree/file", size: 20_000)
        try Command(["touch", "-d", "2001-01-01", place.path("tree/file")]).run().succeeded()
        try place.importing("tree").run().succeeded()
        let opened = try VaultDirectory.open(FilePath(place.vault.vault))
        let secret = try SlotSecret.passphrase(Array(VaultUnderTest.passphrase.utf8))
        let masterKey = try #require(try opened.configuration.unwrapMasterKey(with: secret)).masterKey
        let keyRing = try KeyRing(masterKey: masterKey, configuration: opened.configuration)
        // The system is never shut down. A daemon would also leave a record in the lock file.
        let system = try VaultFileSystem(
            store: Store(root: opened.root, keyRing: keyRing, cacheSize: 0, isReadOnly: false))
        let tree = FileSystemTree(system)
        let item = try #require(try tree.find(Array("file".utf8), in: tree.root))
        let workspace = try Workspace(layout: keyRing.layout)
        let content = try tree.open(item, flags: O_RDWR, workspace)
        try Array("NEW".utf8).withUnsafeBytes { try tree.write($0, to: content, at: 0, workspace) }
        try Data("1 another 1 here 1 1\n".utf8).write(to: URL(fileURLWithPath: "\(place.vault.vault)/vaultfs.lock"))
        var wanted = try Data(contentsOf: URL(fileURLWithPath: place.path("tree/file")))
        wanted.replaceSubrange(..<3, with: Data("NEW".utf8))
        for present in [0, 1] {
            let result = try place.exporting(to: "out", options: ["--verify", "--json"]).run().succeeded()
            let fields = try result.fields()
            #expect(fields["present"] as? Int == present, "\(fields)")
            #expect(try Data(contentsOf: URL(fileURLWithPath: place.path("out/file"))) == wanted)
        }
    }
}
