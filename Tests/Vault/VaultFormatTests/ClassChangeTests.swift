import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

/// A header or record after a change of class, so under another class's key.
@Suite struct ClassChangeTests {
    let vault: TestVault

    init() throws { vault = try TestVault() }

    /// Changes from every class to every other, and to itself.
    static let changes = ProtectionClass.ofFiles.flatMap { old in ProtectionClass.ofFiles.map { (old, $0) } }

    private func parse(_ bytes: [UInt8]) throws -> FileHeader { try FileHeader.parse(bytes) }

    private func rewrapped(_ header: FileHeader, as newClass: ProtectionClass) throws -> FileHeader {
        try header.rewrapped(
            as: newClass, from: try vault.classCipher(header.protectionClass), to: try vault.classCipher(newClass))
    }

    @Test(
        "Header-7, Header-4: id, secret, flags and length stay; class, wrap, counter and mac change", arguments: changes
    )
    func header(old: ProtectionClass, new: ProtectionClass) throws {
        var (made, keys) = try FileHeader.make(old, classCipher: try vault.classCipher(old), vault: vault.id)
        for (isSealed, isSparse) in [(false, false), (true, false), (false, true), (true, true)] {
            (made.isSealed, made.isSparse, made.length, made.sealCounter) = (isSealed, isSparse, 5000, 7)
            let before = try made.serialized(keys: keys)
            var changed = try rewrapped(made, as: new)
            #expect(changed.protectionClass == new && changed.fileID == made.fileID)
            changed.sealCounter += 1
            let after = try changed.serialized(keys: keys)
            #expect(
                after[..<5] == before[..<5] && after[6..<16] == before[6..<16] && after[64..<105] == before[64..<105])
            #expect(after[5] == new.rawValue && (old == new || after[16..<64] != before[16..<64]))
            let found = try parse(after)
            #expect(found.isSealed == isSealed && found.isSparse == isSparse && found.sealCounter == 8)
            #expect(found.length == 5000)
            let opened = try found.unwrapKeys(classCipher: try vault.classCipher(new), vault: vault.id)
            #expect(opened.attributeKey.revealed == keys.attributeKey.revealed)
            if old == new { continue }
            _ = formatError { _ = try found.unwrapKeys(classCipher: try vault.classCipher(old), vault: vault.id) }
        }
    }

    @Test("Header-7, Header-1: every bit of a header of a changed class is authenticated")
    func headerBits() throws {
        let (made, keys) = try FileHeader.make(.complete, classCipher: try vault.classCipher(), vault: vault.id)
        let bytes = try rewrapped(made, as: .none).serialized(keys: keys)
        let before = try made.serialized(keys: keys)
        for (bit, damaged) in bytes.withOneBitChanged {
            _ = formatError("bit \(bit)") {
                let header = try parse(damaged)
                _ = try header.unwrapKeys(classCipher: try vault.classCipher(header.protectionClass), vault: vault.id)
            }
        }
        // Halves of two headers of one file must not combine to a third.
        for cut in [6, 16, 40, 64, 112] {
            _ = formatError("\(cut)") {
                let header = try parse(Array(bytes[..<cut] + before[cut...]))
                _ = try header.unwrapKeys(classCipher: try vault.classCipher(header.protectionClass), vault: vault.id)
            }
        }
    }

    @Test("Header-7, Header-5: a header that does not authenticate is not wrapped anew")
    func damagedHeader() throws {
        let (made, keys) = try FileHeader.make(.complete, classCipher: try vault.classCipher(), vault: vault.id)
        var bytes = try made.serialized(keys: keys)
        bytes[20] ^= 1
        let damaged = try parse(bytes)
        let error = formatError { _ = try rewrapped(damaged, as: .none) }
        #expect(error?.kind == .doesNotAuthenticate)
    }

    @Test("Directory-3: secret and flag stay, and names and attributes with them", arguments: changes)
    func record(old: ProtectionClass, new: ProtectionClass) throws {
        for isRoot in [true, false] {
            let (before, keys) = try DirectoryRecord.make(
                old, isRoot: isRoot, classCipher: try vault.classCipher(old), vault: vault.id)
            let after = try DirectoryRecord.parse(before).rewrapped(
                as: new, from: try vault.classCipher(old), to: try vault.classCipher(new))
            #expect(after.count == DirectoryRecord.size)
            #expect(after[..<5] == before[..<5] && after[6..<16] == before[6..<16] && after[5] == new.rawValue)
            let found = try DirectoryRecord.parse(after)
            #expect(found.protectionClass == new && found.isRoot == isRoot)
            let opened = try found.unwrapKeys(classCipher: try vault.classCipher(new), vault: vault.id)
            #expect(opened.attributeKey.revealed == keys.attributeKey.revealed)
            let entry = try EntryName.encode(ascii("a name"), keys: keys).entry
            #expect(EntryName.decode(entry.bytes, sidecarBlob: nil, keys: opened) == ascii("a name"))
            if old == new { continue }
            _ = formatError { _ = try found.unwrapKeys(classCipher: try vault.classCipher(old), vault: vault.id) }
        }
    }

    @Test("Directory-3, Directory-1: a record that does not authenticate is not wrapped anew")
    func damagedRecord() throws {
        var bytes = try DirectoryRecord.make(
            .complete, isRoot: false, classCipher: try vault.classCipher(), vault: vault.id
        ).bytes
        bytes[20] ^= 1
        let error = formatError {
            _ = try DirectoryRecord.parse(bytes).rewrapped(
                as: .none, from: try vault.classCipher(), to: try vault.classCipher(.none))
        }
        #expect(error?.kind == .doesNotAuthenticate)
    }
}
