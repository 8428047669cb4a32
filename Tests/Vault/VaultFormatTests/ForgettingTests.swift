import Testing
import VaultCrypto

@testable import VaultFormat

/// Forgotten keys of files and directories whose objects stay.
@Suite struct ForgettingTests {
    let vault: VaultID
    let cipher: SivCipher

    init() throws {
        vault = try VaultID.random()
        cipher = try SivCipher(key: .random(count: 64))
    }

    @Test("a file's keys are refused once forgotten, and good once derived anew")
    func filesKeysAreRefusedOnce() throws {
        let (header, keys) = try FileHeader.make(.complete, classCipher: cipher, vault: vault)
        let bytes = try header.serialized(keys: keys)
        let name = Array("user.note".utf8)
        let value = try AttributeCodec(key: keys.attributeKey).encrypt(value: [1, 2], name: name)
        keys.forget()
        #expect(keys.chunk.identity == 0)
        #expect(keys.attributeKey.isForgotten)
        #expect(kind { _ = try header.serialized(keys: keys) } == .keyForgotten)
        #expect(kind { _ = try AttributeCodec(key: keys.attributeKey) } == .keyForgotten)

        keys.refill(from: try FileHeader.parse(bytes).unwrapKeys(classCipher: cipher, vault: vault))
        #expect(keys.chunk.identity != 0)
        #expect(try header.serialized(keys: keys) == bytes)
        #expect(try AttributeCodec(key: keys.attributeKey).decrypt(value: value, name: name) == [1, 2])
    }

    @Test("a directory's keys are refused once forgotten")
    func directorysKeysAreRefusedOnce() throws {
        let (_, keys) = try DirectoryRecord.make(.complete, isRoot: true, classCipher: cipher, vault: vault)
        _ = try EntryName.encode([65], keys: keys)
        keys.forget()
        #expect(keys.attributeKey.isForgotten)
        #expect(kind { _ = try EntryName.encode([65], keys: keys) } == .keyForgotten)
    }

    @Test("without its class key no file or directory opens")
    func withoutItsClassKey() throws {
        let (header, _) = try FileHeader.make(.complete, classCipher: cipher, vault: vault)
        let (bytes, _) = try DirectoryRecord.make(.complete, isRoot: true, classCipher: cipher, vault: vault)
        cipher.forget()
        #expect(kind { _ = try header.unwrapKeys(classCipher: cipher, vault: vault) } == .keyForgotten)
        #expect(
            kind { _ = try DirectoryRecord.parse(bytes).unwrapKeys(classCipher: cipher, vault: vault) } == .keyForgotten
        )
    }

    /// Returns the kind of the error thrown by `body`.
    private func kind(_ body: () throws -> Void) -> FormatError.Kind? {
        do { try body() } catch { return (error as? FormatError)?.kind }
        return nil
    }
}
