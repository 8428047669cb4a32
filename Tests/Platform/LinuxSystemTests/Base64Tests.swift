import LinuxSystem
import TestSupport
import Testing

@Suite struct Base64Tests {
    @Test(
        "Conventions-1: base64url as in RFC 4648 §10, without padding",
        arguments: [
            ("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE"),
            ("foobar", "Zm9vYmFy"),
        ])
    func vectors(plain: String, encoded: String) {
        #expect(text(Base64.url.encode(ascii(plain))) == encoded)
        #expect(Base64.url.decode(ascii(encoded)) == ascii(plain))
    }

    @Test("Conventions-1: the two characters that differ from base64")
    func alphabet() {
        #expect(text(Base64.url.encode([0xFB, 0xFF, 0xBF])) == "-_-_")
    }

    @Test(
        "Conventions-1: another spelling is refused",
        arguments: [
            "Zg==", "Zg=", "Zh", "Zm9=", "Zm9", "Zn8v\n", " Zm9v", "Zm+v", "Zm/v", "Z", "Zm9vY", "Zm9v.", "Zm9v\0",
            "Zé",
        ])
    func notCanonical(encoded: String) {
        #expect(Base64.url.decode(ascii(encoded)) == nil)
    }

    @Test("Conventions-1: every size decodes again, and only one last digit in each group of spellings is canonical")
    func roundTrip() {
        var generator = SeededGenerator(seed: 1)
        for size in 0..<200 {
            let bytes = generator.bytes(size)
            let encoded = Base64.url.encode(bytes)
            #expect(encoded.count == Base64.url.encodedCount(size))
            #expect(Base64.url.decodedCount(encoded.count) == size)
            #expect(Base64.url.decode(encoded) == bytes)
        }
        let accepted = (0..<256).filter { Base64.url.decode([UInt8(ascii: "A"), UInt8($0)]) != nil }
        #expect(accepted.count == 4)
    }

    @Test(
        "base64 with padding as in RFC 4648 §10", arguments: [("f", "Zg=="), ("fo", "Zm8="), ("fo?o~", "Zm8/b34=")])
    func padded(plain: String, encoded: String) {
        #expect(text(Base64.standard.encode(ascii(plain))) == encoded)
        #expect(Base64.standard.decode(ascii(encoded).filter { $0 != UInt8(ascii: "=") }) == ascii(plain))
    }

    private func ascii(_ text: String) -> [UInt8] { Array(text.utf8) }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }
}
