import Foundation
import LinuxSystem
import SystemPackage
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

@Suite struct VaultCreationTests {
    @Test("a store that cannot overwrite bytes gets no vault (object stores)")
    func storeWithoutOverwriting() throws {
        let directory = try TemporaryDirectory()
        let path = FilePath(directory.appending("vault"))
        let answer = { @Sendable (call: WatchedCall) -> Int32 in
            call.kind == .write && call.range.lowerBound == 2 && call.path.contains("/vaultfs.tmp.probe-") ? ESPIPE : 0
        }
        let slots = [SlotRequest(secret: try SlotSecret.keyfile([UInt8](repeating: 7, count: 32)))]
        var error: VaultError?
        CallWatcher.watch(directory.path, includesProbe: true, answer) {
            error = #expect(throws: VaultError.self) {
                try VaultCreation.create(at: path, chunkSize: 4096, slots: slots)
            }
        }
        #expect(error?.description.contains("cannot overwrite a file in place") == true)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path) == [])
    }

    @Test("leftovers of a killed probe do not keep 'init' from making a vault, and are removed")
    func killedProbe() throws {
        let directory = try TemporaryDirectory()
        let vault = directory.appending("vault")
        let probe = vault + "/vaultfs.tmp.probe-1"
        try FileManager.default.createDirectory(atPath: probe + "/directory", withIntermediateDirectories: true)
        for file in ["file", "directory/file", "nnn"] {
            #expect(FileManager.default.createFile(atPath: probe + "/" + file, contents: nil))
        }
        let slots = [SlotRequest(secret: try SlotSecret.keyfile([UInt8](repeating: 7, count: 32)))]
        try VaultCreation.create(at: FilePath(vault), chunkSize: 4096, slots: slots)
        #expect(try !FileManager.default.contentsOfDirectory(atPath: vault).contains { $0.contains("tmp") })
    }

    @Test("a new vault is opened by every slot", arguments: [4096, 65536, 1 << 20])
    func newVaultIsOpened(chunkSize: Int) throws {
        let directory = try VaultTestDirectory()
        let path = directory.path.appending("vault")
        let recovery = try SecretBytes.random(count: RecoveryKey.size)
        let secrets = [
            try VaultFixture.passphrase(), try SlotSecret(kind: .recovery, bytes: recovery),
            try SlotSecret.keyfile([UInt8](repeating: 7, count: 100)),
        ]
        let configuration = try VaultCreation.create(
            at: path, chunkSize: chunkSize, slots: try secrets.map { try VaultFixture.slot($0) })

        let vault = try VaultDirectory.open(path)
        #expect(vault.configuration == configuration)
        #expect(vault.configuration.chunkSize == chunkSize)
        for secret in secrets {
            let keyRing = try KeyRing(masterKey: vault.openSlot(with: secret).masterKey, configuration: configuration)
            let bytes = try Data(contentsOf: URL(fileURLWithPath: path.appending("vaultfs.dir").string))
            let record = try DirectoryRecord.parse(Array(bytes))
            #expect(record.isRoot && record.protectionClass == .complete)
            _ = try record.unwrapKeys(classCipher: keyRing.classCipher(.complete), vault: keyRing.vault)
        }
    }

    @Test("three files, those with content for the owner only, and nothing left over")
    func threeFiles() throws {
        let directory = try VaultTestDirectory()
        let path = directory.path.appending("vault")
        try VaultCreation.create(at: path, chunkSize: 4096, slots: [VaultFixture.slot(VaultFixture.passphrase())])
        #expect(try directory.entries(of: "vault") == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
        for (entry, mode) in [(".", 0o700), ("vaultfs.dir", 0o600), ("vaultfs.json", 0o600)] as [(String, mode_t)] {
            var status = stat()
            #expect(stat(path.appending(entry).string, &status) == 0)
            #expect(status.st_mode & 0o7777 == mode)
        }
    }

    @Test("an empty directory that is there is taken")
    func emptyDirectoryThatIsThere() throws {
        let directory = try VaultTestDirectory()
        try VaultCreation.create(
            at: directory.path, chunkSize: 4096, slots: [VaultFixture.slot(VaultFixture.passphrase())])
        #expect(try directory.entries() == ["vaultfs.dir", "vaultfs.json", "vaultfs.lock"])
    }

    @Test("nothing is touched where there is something")
    func nothingIsTouchedWhereThere() throws {
        let directory = try VaultTestDirectory()
        try directory.write("mine", to: "file")
        #expect(throws: VaultError.refused("directory is not empty: \(directory.path)")) {
            try VaultCreation.create(
                at: directory.path, chunkSize: 4096, slots: [VaultFixture.slot(VaultFixture.passphrase())])
        }
        #expect(throws: VaultError.refused("directory is not empty: \(directory.path)")) {
            try VaultCreation.check(at: directory.path)
        }
        #expect(try directory.entries() == ["file"])
    }

    @Test("at the root of a disk a directory below it is proposed")
    func diskRoot() throws {
        let directory = try VaultTestDirectory()
        try FileManager.default.createDirectory(
            atPath: "\(directory.path)/lost+found", withIntermediateDirectories: false)
        let refusal = VaultError.refused(
            "directory is not empty: \(directory.path): it has lost+found, as the root of a disk has: make the vault below it, "
                + "such as \(directory.path)/Vault")
        #expect(throws: refusal) { try VaultCreation.check(at: directory.path) }
    }

    @Test("a vault is not made over a vault")
    func vaultIsNotMadeOver() throws {
        let directory = try VaultTestDirectory()
        let slots = [try VaultFixture.slot(VaultFixture.passphrase())]
        let made = try VaultCreation.create(at: directory.path, chunkSize: 4096, slots: slots)
        #expect(throws: VaultError.refused("a vault already exists: \(directory.path)")) {
            try VaultCreation.create(at: directory.path, chunkSize: 4096, slots: slots)
        }
        #expect(try VaultDirectory.open(directory.path).configuration == made)
    }

    @Test("the parent has to be there")
    func parentHasToBeThere() throws {
        let directory = try VaultTestDirectory()
        let path = directory.path.appending("missing").appending("vault")
        #expect(throws: VaultError.notFound(path.removingLastComponent())) { try VaultCreation.check(at: path) }
    }

    @Test("a refused parameter leaves no directory behind")
    func refusedParameterLeavesNoDirectory() throws {
        let directory = try VaultTestDirectory()
        #expect(throws: VaultError.self) {
            try VaultCreation.create(
                at: directory.path.appending("vault"), chunkSize: 5000,
                slots: [VaultFixture.slot(VaultFixture.passphrase())])
        }
        #expect(try directory.entries().isEmpty)
    }

    @Test("a failed replacement leaves the old contents and no temporary file")
    func failedReplacementLeavesOldContents() throws {
        let directory = try VaultTestDirectory()
        // A directory of this name makes rename(2) fail, after everything was written.
        #expect(mkdir(directory.path.appending("vaultfs.json").string, 0o700) == 0)
        let root = try VaultDirectory.openDirectory(directory.path)
        #expect(throws: StoreError.system(.isDirectory)) {
            try root.install(
                [1, 2, 3], as: "vaultfs.json", by: "vaultfs.tmp.1", owner: nil, mode: 0o600)
        }
        #expect(try directory.entries() == ["vaultfs.json"])
    }

    @Test("times are spelt as the format wants them")
    func timesAreSpeltAsFormat() {
        #expect(UtcTime.text(secondsSinceEpoch: 0) == "1970-01-01T00:00:00Z")
        #expect(UtcTime.text(secondsSinceEpoch: 1_795_176_245) == "2026-11-20T12:04:05Z")
        #expect(UtcTime.seconds(UtcTime.now().utf8) != nil)
    }
}
