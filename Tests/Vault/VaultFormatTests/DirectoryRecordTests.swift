import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

@Suite struct DirectoryRecordTests {
    let vault: TestVault

    init() throws { vault = try TestVault() }

    private func record(isRoot: Bool = false) throws -> [UInt8] {
        try DirectoryRecord.make(.complete, isRoot: isRoot, classCipher: try vault.classCipher(), vault: vault.id).bytes
    }

    private func open(_ bytes: [UInt8]) throws -> DirectoryKeys {
        try DirectoryRecord.parse(bytes).unwrapKeys(classCipher: try vault.classCipher(), vault: vault.id)
    }

    @Test("Directory-1: a record decodes to the same class, flag and keys", arguments: ProtectionClass.allCases)
    func roundTrip(protectionClass: ProtectionClass) throws {
        let cipher = try vault.classCipher(protectionClass)
        for isRoot in [true, false] {
            let (bytes, keys) = try DirectoryRecord.make(
                protectionClass, isRoot: isRoot, classCipher: cipher, vault: vault.id)
            #expect(bytes.count == DirectoryRecord.size)
            #expect(
                Array(bytes[..<16]) == ascii("VFSD") + [1, protectionClass.rawValue, isRoot ? 1 : 0]
                    + [UInt8](repeating: 0, count: 9))
            let record = try DirectoryRecord.parse(bytes)
            #expect(record.protectionClass == protectionClass && record.isRoot == isRoot)
            let opened = try record.unwrapKeys(classCipher: cipher, vault: vault.id)
            #expect(opened.attributeKey.revealed == keys.attributeKey.revealed)
            let encoded = try EntryName.encode(ascii("a name"), keys: keys)
            #expect(EntryName.decode(encoded.entry.bytes, sidecarBlob: nil, keys: opened) == ascii("a name"))
        }
    }

    @Test("Directory-1: every bit flipped is an error", arguments: [true, false])
    func bitFlips(isRoot: Bool) throws {
        let bytes = try record(isRoot: isRoot)
        for (bit, damaged) in bytes.withOneBitChanged {
            _ = formatError("bit \(bit)") { _ = try open(damaged) }
        }
    }

    @Test("Directory-1: every truncation, and an extra byte, is refused")
    func truncations() throws {
        let bytes = try record()
        for count in 0..<bytes.count { _ = formatError("\(count)") { _ = try open(Array(bytes[..<count])) } }
        _ = formatError { _ = try open(bytes + [0]) }
    }

    @Test(
        "Directory-2, Conventions-2, Conventions-3: fields that version 1 does not write are refused by name",
        arguments: [
            (0, "magic"), (4, "version"), (5, "class"), (6, "flags"), (7, "epoch"), (8, "reserved"), (15, "reserved"),
        ])
    func unknownValues(position: Int, word: String) throws {
        var bytes = try record()
        bytes[position] = bytes[position] &+ 0x84
        #expect(formatError { _ = try DirectoryRecord.parse(bytes) }?.reason.contains(word) == true)
    }

    @Test("Directory-1, Keys-1: another vault's or class's key opens nothing")
    func otherKeys() throws {
        let record = try DirectoryRecord.parse(try record())
        let other = try TestVault()
        _ = formatError { _ = try record.unwrapKeys(classCipher: try vault.classCipher(.unlessOpen), vault: vault.id) }
        _ = formatError { _ = try record.unwrapKeys(classCipher: try other.classCipher(), vault: other.id) }
    }
}
