import Foundation
import LinuxSystem
import TestSupport
import Testing
import VaultCrypto
import VaultFormat

/// Checks that the specification and the tests agree.
@Suite struct SpecificationTests {
    private static let root = URL(filePath: Products.root)

    @Test("Every requirement of the specification has a test that names it")
    func coverage() throws {
        let specification = try String(
            contentsOf: Self.root.appending(path: "Sources/Vault/VaultFormat/VaultFormat.docc/FileFormat.md"),
            encoding: .utf8
        )
        let labels = specification.matches(of: /^- \*([A-Z][a-z]+-[0-9]+)\*:/.anchorsMatchLineEndings()).map {
            String($0.1)
        }
        #expect(labels.count > 50)
        #expect(Set(labels).count == labels.count, "a label is given twice")
        let folder = Self.root.appending(path: "Tests")
        var named: Set<String> = []
        for path in try FileManager.default.subpathsOfDirectory(atPath: folder.path) where path.hasSuffix(".swift") {
            let text = try String(contentsOf: folder.appending(path: path), encoding: .utf8)
                .replacing(/^ *\/\/.*$/.anchorsMatchLineEndings(), with: "")
            named.formUnion(text.matches(of: /[A-Z][a-z]+-[0-9]+/).map { String($0.0) })
        }
        for label in labels { #expect(named.contains(label), "\(label)") }
    }

    @Test("Conventions-4: no value that can be empty is passed to SIV alone")
    func emptyPlaintext() throws {
        let codec = try AttributeCodec(key: try SecretBytes.random(count: 64))
        let stored = try codec.encrypt(value: [], name: ascii("user.a"))
        #expect(stored.count == 17)
        #expect(try codec.decrypt(value: stored, name: ascii("user.a")) == [])
        let tagOfNothing = [UInt8](repeating: 0, count: 16)
        #expect(throws: FormatError.self) { try codec.decrypt(value: tagOfNothing, name: ascii("user.a")) }
        #expect(codec.name(ofStored: ascii("user.vaultfs.") + Base64.url.encode(tagOfNothing)) == nil)
        let directory = try TestVault().directory()
        #expect(EntryName.decode(Base64.url.encode(tagOfNothing), sidecarBlob: nil, keys: directory) == nil)
        let link = ascii("1") + Base64.url.encode(tagOfNothing + tagOfNothing)
        let cipher = try TestVault().linkCipher()
        #expect(throws: FormatError.self) { try LinkTarget.decode(link, linkCipher: cipher) }
    }

    @Test("Conventions-2: reserved bytes are refused, each of them")
    func reservedBytes() throws {
        let vault = try TestVault()
        let cipher = try vault.classCipher()
        let made = try FileHeader.make(.complete, classCipher: cipher, vault: vault.id)
        let header = try made.header.serialized(keys: made.keys)
        for position in 64..<96 {
            var bytes = header
            bytes[position] = 1
            #expect(throws: FormatError.self) { try FileHeader.parse(bytes) }
        }
        let record = try DirectoryRecord.make(.complete, isRoot: true, classCipher: cipher, vault: vault.id).bytes
        for position in 8..<16 {
            var bytes = record
            bytes[position] = 1
            #expect(throws: FormatError.self) { try DirectoryRecord.parse(bytes) }
        }
    }
}
