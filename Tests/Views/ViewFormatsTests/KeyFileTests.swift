import Testing
import VaultCrypto

@testable import ViewFormats

/// The bytes of a key file, and the resulting key.
@Suite struct KeyFileTests {
    /// Returns bytes that are not digits and do not end in a newline.
    static func binary(_ count: Int) -> [UInt8] { (0..<count).map { UInt8(0x80 + $0 % 64) } }
    static func digits(_ count: Int) -> [UInt8] { (0..<count).map { [UInt8]("0123456789abcdefABCDEF".utf8)[$0 % 22] } }
    static func value(_ digits: [UInt8]) -> [UInt8] {
        stride(from: 0, to: digits.count, by: 2).map { index in
            UInt8(String(decoding: digits[index...(index + 1)], as: UTF8.self), radix: 16) ?? 0
        }
    }

    private func parse(_ bytes: [UInt8], _ cipher: ViewCipher?) throws(ViewError) -> KeyMaterial {
        try KeyFile.parse(bytes, cipher: cipher, name: "key file k")
    }

    @Test("A file of the cipher's key length is binary, whatever its content", arguments: ViewCipher.allCases)
    func binaryKeys(cipher: ViewCipher) throws {
        let size = cipher.keySize
        for bytes in [Self.binary(size), [UInt8](repeating: 0x0A, count: size), [UInt8](repeating: 0x20, count: size)] {
            let found = try parse(bytes, cipher)
            #expect(found.key.exposed == bytes)
        }
    }

    @Test("A binary key with a newline is used without it", arguments: [nil] + ViewCipher.allCases)
    func newline(cipher: ViewCipher?) throws {
        for size in cipher.map({ [$0.keySize] }) ?? [16, 24, 32] {
            for end in ["\n", "\r\n"] {
                let found = try parse(Self.binary(size) + [UInt8](end.utf8), cipher)
                #expect(found.key.exposed == Self.binary(size))
            }
        }
    }

    @Test("Twice the length in digits is hexadecimal", arguments: [nil] + ViewCipher.allCases)
    func hexadecimal(cipher: ViewCipher?) throws {
        for size in cipher.map({ [$0.keySize] }) ?? [16, 24, 32] {
            let digits = Self.digits(2 * size)
            for (start, end) in [("", ""), ("", "\n"), ("0x", ""), ("0X", "\r\n"), ("0x", " \t\n\n")] {
                let found = try parse([UInt8](start.utf8) + digits + [UInt8](end.utf8), cipher)
                #expect(found.key.exposed == Self.value(digits))
            }
        }
    }

    @Test("32 digits are a hexadecimal key of AES-128, unless AES-256 is wanted")
    func ambiguous() throws {
        let digits = Self.digits(32)
        #expect(try parse(digits, nil).key.exposed == Self.value(digits))
        #expect(try parse(digits + [0x0A], nil).key.exposed == Self.value(digits))
        #expect(try parse(digits, .aes128CBC).key.exposed == Self.value(digits))
        let binary = try parse(digits, .aes256CBC)
        #expect(binary.key.exposed == digits)
    }

    @Test("Any other length is an error that names it")
    func lengths() throws {
        for count in 0...70 where ![16, 17, 18].contains(count) {
            // Here digits, a space or a newline at the end do not help, because the length is wrong.
            let bytes = Self.binary(count)
            #expect(
                noKeyReason(try parse(bytes, .aes128CBC))
                    == "key file k has \(count) bytes, which is not a key of 16 bytes or 32 hexadecimal digits")
        }
        #expect(noKeyReason(try parse(Self.binary(17), .aes128CBC)) != nil)
        #expect(noKeyReason(try parse(Self.binary(18), .aes128CBC)) != nil)
        #expect(noKeyReason(try parse(Self.binary(17) + [0x0A], .aes128CBC)) != nil)
        #expect(
            noKeyReason(try parse(Self.binary(20), nil))
                == "key file k has 20 bytes, which is not a key of 16, 24 or 32 bytes, or twice as many hexadecimal digits"
        )
        for text in [Self.digits(31), Self.digits(33), Self.digits(31) + [0x67], [0x30, 0x78] + Self.digits(30)] {
            #expect(noKeyReason(try parse(text, .aes128CBC)) != nil)
        }
        #expect(
            noKeyReason(try parse(Self.digits(32) + Self.binary(4065), nil))
                == "key file k has more than 4096 bytes, where a key of 16, 24 or 32 bytes, or twice as many hexadecimal "
                + "digits is expected")
    }

    @Test("A key in base64 is no key of another length")
    func base64() throws {
        let hint = "looks like a key in base64: decode it with 'base64 -d'"
        for text in ["AAECAwQFBgcICQoLDA0ODw==\n", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="] {
            #expect(noKeyReason(try KeyFile.parse(Array(text.utf8), cipher: nil, name: "k")) == "k \(hint)")
        }
        #expect(try KeyFile.parse(Array("AAECAwQFBgcICQoLDA0ODw=!".utf8), cipher: nil, name: "k").key.count == 24)
    }
}
