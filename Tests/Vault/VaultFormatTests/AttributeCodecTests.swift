import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

@Suite struct AttributeCodecTests {
    let key: SecretBytes
    let codec: AttributeCodec

    init() throws {
        key = try SecretBytes.random(count: 64)
        codec = try AttributeCodec(key: key)
    }

    @Test("Attributes-1: names of up to 165 bytes after the prefix decode again; longer ones are an error")
    func names() throws {
        for length in 1...165 {
            let name = ascii("user.") + [UInt8](repeating: 0x78, count: length)
            let stored = try codec.storedName(of: name)
            #expect(stored.count <= AttributeCodec.maximumNameLength)
            #expect(codec.name(ofStored: stored) == name)
            #expect(try codec.storedName(of: name) == stored)
        }
        for length in [166, 167, 250, 1000] {
            let name = ascii("user.") + [UInt8](repeating: 0x78, count: length)
            #expect(formatError { _ = try codec.storedName(of: name) }?.kind == .tooLong)
        }
    }

    @Test("Attributes-1, Attributes-3: name and value are stored as the specification defines")
    func specification() throws {
        let cipher = try SivCipher(key: key)
        let name = try cipher.encrypt(ascii("comment"), associatedData: [ascii("name")])
        #expect(try codec.storedName(of: ascii("user.comment")) == ascii("user.vaultfs.") + Base64.url.encode(name))
        let value = try cipher.encrypt([0] + ascii("text"), associatedData: [ascii("value"), ascii("comment")])
        #expect(try codec.encrypt(value: ascii("text"), name: ascii("user.comment")) == value)
    }

    @Test("Attributes-2: names outside user., empty after it, or reserved are refused")
    func invalidNames() {
        for name in ["", "user", "user.", "trusted.x", "xuser.x", "user.vaultfs.class", "user.vaultfs.", "user.a\0b"] {
            #expect(formatError("\(name)") { _ = try codec.storedName(of: ascii(name)) }?.kind == .invalidValue)
            _ = formatError { _ = try codec.encrypt(value: [], name: ascii(name)) }
        }
        #expect(throws: Never.self) { try codec.storedName(of: ascii("user.vaultfs")) }
    }

    @Test("Attributes-2: a reserved name is refused in reading, under a valid SIV")
    func reservedSealed() throws {
        let cipher = try SivCipher(key: key)
        for name in ["vaultfs.class", "a\0b"] {
            let sealed = try cipher.encrypt(ascii(name), associatedData: [ascii("name")])
            #expect(codec.name(ofStored: ascii("user.vaultfs.") + Base64.url.encode(sealed)) == nil)
        }
    }

    @Test("Attributes-3: values decode again, the empty one too", arguments: [0, 1, 15, 16, 17, 4000, 65519])
    func values(size: Int) throws {
        let value = [UInt8](repeating: 0, count: size)
        let stored = try codec.encrypt(value: value, name: ascii("user.a"))
        #expect(stored.count == size + AttributeCodec.valueOverhead)
        #expect(try codec.decrypt(value: stored, name: ascii("user.a")) == value)
    }

    @Test("Attributes-3: a value changed, cut, or moved to another name or object is an error")
    func damage() throws {
        let stored = try codec.encrypt(value: ascii("value"), name: ascii("user.a"))
        for (bit, damaged) in stored.withOneBitChanged {
            _ = formatError("bit \(bit)") { _ = try codec.decrypt(value: damaged, name: ascii("user.a")) }
        }
        for count in stored.indices {
            _ = formatError { _ = try codec.decrypt(value: Array(stored[..<count]), name: ascii("user.a")) }
        }
        let other = try AttributeCodec(key: try SecretBytes.random(count: 64))
        #expect(
            formatError { _ = try codec.decrypt(value: stored, name: ascii("user.b")) }?.kind == .doesNotAuthenticate)
        #expect(
            formatError { _ = try other.decrypt(value: stored, name: ascii("user.a")) }?.kind == .doesNotAuthenticate)
    }

    @Test("Attributes-3: a first byte other than zero is refused, under a valid SIV")
    func form() throws {
        let context = [ascii("value"), ascii("a")]
        let stored = try SivCipher(key: key).encrypt([1] + ascii("value"), associatedData: context)
        #expect(formatError { _ = try codec.decrypt(value: stored, name: ascii("user.a")) }?.kind == .malformed)
    }

    @Test("Attributes-3: a stored name changed, cut or respelt is not a name")
    func damagedNames() throws {
        let stored = try codec.storedName(of: ascii("user.comment"))
        for (bit, damaged) in stored.withOneBitChanged {
            #expect(codec.name(ofStored: damaged) == nil, "bit \(bit)")
        }
        for count in stored.indices { #expect(codec.name(ofStored: Array(stored[..<count])) == nil) }
        #expect(codec.name(ofStored: stored + ascii("=")) == nil)
        #expect(codec.name(ofStored: ascii("user.comment")) == nil)
    }
}
