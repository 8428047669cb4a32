import TestSupport
import Testing
import VaultCrypto
import VaultFormat

@Suite struct AttributePackTests {
    let key: SecretBytes
    let codec: AttributeCodec

    init() throws {
        key = try SecretBytes.random(count: 64)
        codec = try AttributeCodec(key: key)
    }

    private func sealed(_ plaintext: [UInt8]) throws -> [UInt8] {
        try SivCipher(key: key).encrypt(plaintext, associatedData: [ascii("pack")])
    }

    @Test("Attributes-4: a pack is stored as the specification defines")
    func specification() throws {
        var pack = AttributePack()
        pack[ascii("user.b")] = []
        pack[ascii("user.comment")] = ascii("text")
        pack[ascii("user.a")] = [UInt8](repeating: 7, count: 300)
        let plaintext =
            [0, 1] + ascii("a") + [0x2c, 1] + [UInt8](repeating: 7, count: 300) + [1] + ascii("b") + [0, 0, 7]
            + ascii("comment") + [4, 0] + ascii("text")
        #expect(try codec.encrypt(pack: pack) == sealed(plaintext))
        #expect(AttributeCodec.packName == ascii("user.vaultfs.pack"))
        #expect(codec.name(ofStored: AttributeCodec.packName) == nil)
    }

    @Test("Attributes-4: values that are set are returned, and removed ones are not")
    func model() throws {
        var generator = SeededGenerator(seed: 1)
        var (pack, model) = (AttributePack(), [[UInt8]: [UInt8]]())
        for _ in 0..<2000 {
            let name = ascii("user.") + ascii(String(Int.random(in: 0...60, using: &generator), radix: 2))
            let value =
                Bool.random(using: &generator) ? generator.bytes(Int.random(in: 0...40, using: &generator)) : nil
            (pack[name], model[name]) = (value, value)
            #expect(pack[name] == value)
        }
        #expect(Dictionary(uniqueKeysWithValues: pack.names.map { ($0, pack[$0]) }) == model.mapValues { $0 })
        #expect(try codec.decrypt(pack: #require(try codec.encrypt(pack: pack))) == pack)
        for name in pack.names { pack[name] = nil }
        #expect(pack.isEmpty)
    }

    @Test("Attributes-4: a pack is no larger than a stored attribute can be")
    func size() throws {
        var pack = AttributePack()
        pack[ascii("user.a")] = [UInt8](repeating: 1, count: 65536 - 16 - 1 - 4)
        #expect(try #require(try codec.encrypt(pack: pack)).count == 65536)
        #expect(try codec.decrypt(pack: #require(try codec.encrypt(pack: pack))) == pack)
        pack[ascii("user.b")] = []
        #expect(try codec.encrypt(pack: pack) == nil)
    }

    @Test("Attributes-4: a pack changed, cut or of another object is an error")
    func damage() throws {
        var pack = AttributePack()
        pack[ascii("user.a")] = ascii("value")
        let stored = try #require(try codec.encrypt(pack: pack))
        for (bit, damaged) in stored.withOneBitChanged {
            _ = formatError("bit \(bit)") { _ = try codec.decrypt(pack: damaged) }
        }
        for count in stored.indices { _ = formatError { _ = try codec.decrypt(pack: Array(stored[..<count])) } }
        let other = try AttributeCodec(key: try SecretBytes.random(count: 64))
        #expect(formatError { _ = try other.decrypt(pack: stored) }?.kind == .doesNotAuthenticate)
        // Neither may pass for the other: a pack for the value of an attribute, or a value for a pack.
        #expect(formatError { _ = try codec.decrypt(value: stored, name: ascii("user.pack")) } != nil)
        #expect(
            formatError { _ = try codec.decrypt(pack: try codec.encrypt(value: [], name: ascii("user.pack"))) } != nil)
    }

    @Test(
        "Attributes-4: a pack with another layout is refused, even under a valid SIV",
        arguments: [
            [1], [0, 0, 0, 0], [0, 1], [0, 1, 97], [0, 1, 97, 0], [0, 1, 97, 1, 0], [0, 1, 97, 0, 1, 5],
            [0, 2, 97, 0, 0, 0], [0, 1, 98, 0, 0, 1, 97, 0, 0], [0, 1, 97, 0, 0, 1, 97, 0, 0],
            [0, 166] + [UInt8](repeating: 97, count: 166) + [0, 0], [0, 9] + Array("vaultfs.x".utf8) + [0, 0],
        ] as [[UInt8]])
    func layout(plaintext: [UInt8]) throws {
        #expect(formatError { _ = try codec.decrypt(pack: try sealed(plaintext)) }?.kind == .malformed)
    }

    @Test("Conventions-5: random plaintexts under a valid SIV are packs or errors")
    func random() throws {
        var generator = SeededGenerator(seed: 2)
        for _ in 0..<5000 {
            let bytes = [0] + generator.bytes(Int.random(in: 0...12, using: &generator)).map { $0 & 3 }
            let stored = try sealed(bytes)
            guard let pack = try? codec.decrypt(pack: stored) else { continue }
            #expect(try codec.encrypt(pack: pack) == stored)
        }
    }
}
