import CLinux
import Glibc
import LinuxSystem
import SystemPackage
import Testing
import VaultCare
import VaultFormat
import VaultStore

@testable import VaultStoreTests

/// Damage to extended attributes.
struct VerifierAttributeTests {
    private func makeVault() throws -> VerifierVault {
        try VerifierVault { writer in
            for name in ["f", "g"] {
                let file = try writer.file(name, count: 10)
                try writer.setAttribute("user.one", "1", key: file.keys.attributeKey, on: file.reader)
                try writer.setAttribute("user.two", "2", key: file.keys.attributeKey, on: file.reader)
            }
            let directory = try writer.directory("d")
            let key = directory.keys.attributeKey
            try writer.setAttribute("user.tag", "t", key: key, on: directory.descriptor)
        }
    }

    private func attributes(_ path: String) throws -> (attributes: ExtendedAttributes, names: [[UInt8]]) {
        let attributes = ExtendedAttributes(
            try Descriptor(path: FilePath(bytes: Array(path.utf8)), flags: linux_O_PATH))
        let names = try attributes.names().filter { $0.starts(with: Array("user.".utf8)) }
        return (attributes, names.sorted { $0.lexicographicallyPrecedes($1) })
    }

    @Test("undamaged")
    func undamaged() throws {
        let (findings, totals) = try makeVault().findings()
        #expect(findings == [])
        #expect(totals.attributes == 5)
    }

    @Test("a value changed")
    func aValueChanged() throws {
        let vault = try makeVault()
        let (attributes, names) = try attributes(vault.backing("d"))
        var value = try attributes.value(of: names[0])
        value[value.count - 1] ^= 1
        try attributes.set(names[0], value, flags: 0)
        #expect(try vault.found() == ["damaged d:user.tag"])
    }

    @Test("a value too short", arguments: [0, 5, 16])
    func aValueTooShort(_ size: Int) throws {
        let vault = try makeVault()
        let (attributes, names) = try attributes(vault.backing("d"))
        try attributes.set(names[0], Array(attributes.value(of: names[0]).prefix(size)), flags: 0)
        #expect(try vault.found() == ["damaged d:user.tag"])
    }

    @Test("values exchanged")
    func valuesExchanged() throws {
        let vault = try makeVault()
        let (attributes, names) = try attributes(vault.backing("f"))
        let values = try names.map { try attributes.value(of: $0) }
        try attributes.set(names[0], values[1], flags: 0)
        try attributes.set(names[1], values[0], flags: 0)
        #expect(try vault.found() == ["damaged f:user.one", "damaged f:user.two"])
    }

    @Test("an attribute of another file")
    func anAttributeOfAnotherFile() throws {
        let vault = try makeVault()
        let (source, names) = try attributes(vault.backing("f"))
        let (target, _) = try attributes(vault.backing("g"))
        try target.set(names[0], source.value(of: names[0]), flags: 0)
        #expect(try vault.found() == ["hiddenName g:\(String(decoding: names[0], as: UTF8.self))"])
    }

    private func makePackedVault() throws -> VerifierVault {
        try VerifierVault { writer in
            for name in ["f", "g"] {
                let file = try writer.file(name, count: 10)
                let values = ["user.a": "1", "user.b": "", "user.c": "3"]
                try writer.setPack(values, key: file.keys.attributeKey, on: file.reader)
                try writer.setAttribute("user.own", "4", key: file.keys.attributeKey, on: file.reader)
            }
        }
    }

    @Test("Attributes-4: the attributes of a pack are counted, and a changed pack is damage")
    func aPack() throws {
        let vault = try makePackedVault()
        let (findings, totals) = try vault.findings()
        #expect(findings == [])
        #expect(totals.attributes == 8)
        let (source, _) = try attributes(vault.backing("f"))
        let (target, _) = try attributes(vault.backing("g"))
        try target.set(AttributeCodec.packName, source.value(of: AttributeCodec.packName), flags: 0)
        #expect(try vault.found() == ["damaged g:user.vaultfs.pack"])
        try target.set(AttributeCodec.packName, [], flags: 0)
        #expect(try vault.found() == ["damaged g:user.vaultfs.pack"])
    }

    @Test("a name that is not ours", arguments: ["user.plain", "user.vaultfs.class", "user.vaultfs.!"])
    func aNameThatIsNotOurs(_ name: String) throws {
        let vault = try makeVault()
        try attributes(vault.backing("")).attributes.set(Array(name.utf8), [1], flags: 0)
        #expect(try vault.found() == ["hiddenName :\(name)"])
    }
}
