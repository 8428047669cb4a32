import TestSupport
import Testing
import VaultFormat

@Suite struct Base64URLTests {
    @Test(
        "Conventions-1: base64url as RFC 4648 §10 has it, without padding",
        arguments: [
            ("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ])
    func vectors(plain: String, encoded: String) {
        #expect(text(Base64URL.encode(ascii(plain))) == encoded)
        #expect(Base64URL.decode(ascii(encoded)) == ascii(plain))
    }

    @Test("Conventions-1: the two characters that differ from base64")
    func alphabet() {
        #expect(text(Base64URL.encode([0xFB, 0xFF, 0xBF])) == "-_-_")
    }

    @Test(
        "Conventions-1: another spelling is refused",
        arguments: [
            "Zg==", "Zg=", "Zh", "Zm9=", "Zm9", "Zn8v\n", " Zm9v", "Zm+v", "Zm/v", "Z", "Zm9vY", "Zm9v.", "Zm9v\0",
            "Zé",
        ])
    func notCanonical(encoded: String) {
        #expect(Base64URL.decode(ascii(encoded)) == nil)
    }

    @Test("Conventions-1: every size comes back, and only one last digit in each group of spellings is canonical")
    func roundTrip() {
        var generator = SeededGenerator(seed: 1)
        for size in 0..<200 {
            let bytes = generator.bytes(size)
            let encoded = Base64URL.encode(bytes)
            #expect(encoded.count == Base64URL.encodedCount(size))
            #expect(Base64URL.decodedCount(encoded.count) == size)
            #expect(Base64URL.decode(encoded) == bytes)
        }
        let accepted = (0..<256).filter { Base64URL.decode([UInt8(ascii: "A"), UInt8($0)]) != nil }
        #expect(accepted.count == 4)
    }
}
