import Foundation
import SystemPackage
import Testing
import VaultFormat

@testable import VaultStore

@Suite struct VaultDirectoryTests {
    @Test("opens and unlocks a vault of another implementation", arguments: ["vault-4096", "vault-16384"])
    func opensAndUnlocksVault(name: String) throws {
        let vault = try VaultDirectory.open(VaultFixture.vector(name))
        let masterKey = try vault.openSlot(with: VaultFixture.passphrase()).masterKey
        try vault.authenticate(masterKey: masterKey)
        let keyRing = try KeyRing(masterKey: masterKey, configuration: vault.configuration)
        #expect("vault-\(keyRing.layout.chunkSize)" == name)
        let bytes = try Data(contentsOf: URL(fileURLWithPath: vault.path.appending("vaultfs.dir").string))
        let record = try DirectoryRecord.parse(Array(bytes))
        #expect(record.isRoot)
        _ = try record.unwrapKeys(classCipher: keyRing.classCipher(record.protectionClass), vault: keyRing.vault)
    }

    @Test("nothing there")
    func nothingThere() throws {
        let directory = try VaultTestDirectory()
        let path = directory.path.appending("nothing")
        #expect(throws: VaultError.notFound(path)) { try VaultDirectory.open(path) }
    }

    @Test("not a directory")
    func fileInPlaceOfTheDirectory() throws {
        let directory = try VaultTestDirectory()
        try directory.write("text", to: "file")
        let path = directory.path.appending("file")
        #expect(throws: VaultError.unusable("not a directory: \(path)")) { try VaultDirectory.open(path) }
    }

    @Test("not a vault")
    func notVault() throws {
        let directory = try VaultTestDirectory()
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
        #expect(error == .notAVault(directory.path))
        #expect(
            error?.description
                == "not a vault: no vaultfs.json in \(directory.path); check the path, or make one with 'vaultfs init'")
    }

    @Test("a vault that lost its configuration is not taken for a directory to make one in")
    func vaultThatLostItsConfiguration() throws {
        let directory = try VaultTestDirectory()
        try directory.write("x", to: "vaultfs.dir")
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
        #expect(error?.description.hasSuffix("nothing opens the vault: put a copy of it back") == true)
    }

    @Test(
        "damaged configuration",
        arguments: [
            ("empty", ""), ("not JSON", "hello"), ("another JSON", "{}"),
            ("deep", String(repeating: "[", count: 100_000)),
            ("giant", String(repeating: " ", count: 2 << 20)), ("NUL bytes", String(repeating: "\0", count: 4096)),
        ]
    )
    func damagedConfiguration(name: String, text: String) throws {
        let directory = try VaultTestDirectory()
        try directory.write(text, to: "vaultfs.json")
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
        #expect(error?.description.hasPrefix("\(directory.path)/vaultfs.json: damaged: ") == true, "\(name)")
        #expect(error?.description.contains("\n") == false)
    }

    @Test("every truncation of the configuration is damage")
    func everyTruncationOfConfiguration() throws {
        let directory = try VaultTestDirectory()
        let text = try VaultFixture.configurationText(VaultFixture.vector("vault-4096"))
        let trimmed = text.trimmingCharacters(in: .whitespacesAndNewlines)
        for count in stride(from: 0, to: trimmed.utf8.count, by: 7) {
            try directory.write(String(trimmed.prefix(count)), to: "vaultfs.json")
            let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
            let reason = try #require(error?.description.split(separator: "/vaultfs.json: damaged: ").last)
            #expect(!reason.contains("vaultfs.json") && reason.hasSuffix(": put a copy of it back"), "\(count) bytes")
        }
    }

    @Test("a newer version")
    func newerFormatVersion() throws {
        let directory = try VaultTestDirectory()
        let text = try VaultFixture.configurationText(VaultFixture.vector("vault-4096"))
        try directory.write(text.replacing("\"version\": 1", with: "\"version\": 2"), to: "vaultfs.json")
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
        let reason = "version 2 is unknown: written by a newer version of vaultfs"
        #expect(error?.description == "\(directory.path)/vaultfs.json: \(reason)")
    }

    @Test("a symbolic link in place of the configuration is not followed")
    func symbolicLinkInPlace() throws {
        let directory = try VaultTestDirectory()
        try FileManager.default.createSymbolicLink(
            atPath: directory.path.appending("vaultfs.json").string,
            withDestinationPath: VaultFixture.vector("vault-4096").appending("vaultfs.json").string)
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
        #expect(error?.description.hasSuffix("vaultfs.json: damaged: not a regular file") == true)
    }

    @Test("a configuration that is no file does not hang", arguments: ["FIFO", "directory"])
    func configurationThatIsNoFile(kind: String) throws {
        let directory = try VaultTestDirectory()
        let path = directory.path.appending("vaultfs.json").string
        if kind == "FIFO" { #expect(mkfifo(path, 0o600) == 0) } else { #expect(mkdir(path, 0o700) == 0) }
        let error = #expect(throws: VaultError.self) { try VaultDirectory.open(directory.path) }
        #expect(error == .damaged(directory.path.appending("vaultfs.json"), "not a regular file"))
    }

    @Test("a link to the vault's directory is followed")
    func linkToVaultsDirectory() throws {
        let directory = try VaultTestDirectory()
        let link = directory.path.appending("link")
        try FileManager.default.createSymbolicLink(
            atPath: link.string, withDestinationPath: VaultFixture.vector("vault-4096").string)
        #expect(try VaultDirectory.open(link).configuration.chunkSize == 4096)
    }

    @Test("wrong secrets")
    func wrongSecrets() throws {
        let vault = try VaultDirectory.open(VaultFixture.vector("vault-4096"))
        #expect(throws: VaultError.wrongSecret(vault.path, .passphrase)) {
            try vault.openSlot(with: VaultFixture.passphrase("correct hors")).masterKey
        }
        let keyfile = try SlotSecret.keyfile([UInt8](repeating: 1, count: 32))
        #expect(throws: VaultError.noSlot(vault.path, .keyfile)) { try vault.openSlot(with: keyfile).masterKey }
    }

    @Test("a configuration that was changed by someone without a key")
    func configurationThatWasChanged() throws {
        let directory = try VaultTestDirectory()
        let text = try VaultFixture.configurationText(VaultFixture.vector("vault-4096"))
        try directory.write(text.replacing("\"generation\": 1", with: "\"generation\": 2"), to: "vaultfs.json")
        let vault = try VaultDirectory.open(directory.path)
        let error = #expect(throws: VaultError.self) { try vault.openSlot(with: VaultFixture.passphrase()).masterKey }
        #expect(error?.description.contains("damaged: changed without a secret: put a copy") == true)

        let original = try VaultDirectory.open(VaultFixture.vector("vault-4096"))
        let masterKey = try original.openSlot(with: VaultFixture.passphrase()).masterKey
        #expect(throws: VaultError.self) { try vault.authenticate(masterKey: masterKey) }
    }

    @Test(
        "a slot past its date is refused", arguments: [("2020-01-01T00:00:00Z", false), ("2999-01-01T00:00:00Z", true)])
    func slotPastItsDate(expires: String, opens: Bool) throws {
        let directory = try VaultTestDirectory()
        let path = directory.path.appending("vault")
        let slot = try VaultFixture.slot(VaultFixture.passphrase(), expires: expires)
        try VaultCreation.create(at: path, chunkSize: 4096, slots: [slot])
        let vault = try VaultDirectory.open(path)
        if opens {
            _ = try vault.openSlot(with: VaultFixture.passphrase()).masterKey
        } else {
            #expect {
                try vault.openSlot(with: VaultFixture.passphrase()).masterKey
            } throws: { error in
                guard case .slotEnded(let reason)? = error as? VaultError else { return false }
                return reason.hasPrefix("\(path): slot 1 expired at \(expires): ")
            }
        }
    }

    @Test("messages cannot drive a terminal")
    func messagesCannotDriveTerminal() {
        let error = VaultError.notFound(FilePath("/a\u{1B}[2J\nb"))
        #expect(error.description == "no such directory: /a?[2J?b")
    }
}
