import Testing

@testable import VaultCrypto

@Suite struct KeyDerivationTests {
    @Test("HKDF-SHA256, RFC 5869 appendix A.1")
    func hkdfCase1() throws {
        let output = try Hkdf.derive(
            secret: secret([UInt8](repeating: 0x0b, count: 22)), salt: bytes(hex: "000102030405060708090a0b0c"),
            info: bytes(hex: "f0f1f2f3f4f5f6f7f8f9"), count: 42)
        #expect(
            hex(content(output))
                == "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865")
    }

    @Test("HKDF-SHA256, RFC 5869 appendix A.3: no salt, no info")
    func hkdfCase3() throws {
        let output = try Hkdf.derive(
            secret: secret([UInt8](repeating: 0x0b, count: 22)), salt: [], info: [], count: 42)
        #expect(
            hex(content(output))
                == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8")
    }

    @Test("HKDF-SHA256 as for a directory's keys; reference: Python cryptography 48")
    func hkdfOfTheFormat() throws {
        let output = try Hkdf.derive(
            secret: secret(0..<32), salt: (0..<16).map { UInt8($0) }, info: Array("vaultfs 1 directory".utf8),
            count: 128)
        #expect(
            hex(content(output)) == """
                50ab898d3cda64b5c3d05819d805c18082d62e794531ce764bc859f281b14ed1131b81539098ff0a161173e8efdb54ff\
                fda5b7ae9bcdd2b31345d26ff532fd8a5890bb62910b59aaed77905632beab0e52f83091617af7f5095b2580bb31ac46\
                24a0daf15647e9858b790e6cf20186ad59174ec6ad17093aaf5ae9233b6853ed
                """)
    }

    @Test("HKDF refuses sizes", arguments: [0, -1, 8161])
    func hkdfRefusesSizes(count: Int) {
        #expect(throws: CryptoError.invalidInput("\(count) bytes of HKDF output")) {
            try Hkdf.derive(secret: secret([1]), salt: [], info: [], count: count)
        }
    }

    @Test("HKDF refuses an empty secret")
    func hkdfRefusesAnEmptySecret() {
        #expect(throws: CryptoError.invalidInput("an empty HKDF secret")) {
            try Hkdf.derive(secret: secret([]), salt: [], info: [], count: 32)
        }
    }

    @Test(
        "scrypt, RFC 7914 section 12",
        arguments: [
            (
                "password", "NaCl", 10, 8, 16,
                """
                fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b3731622eaf30d92e22a3886ff109279d9830da\
                c727afb94a83ee6d8360cbdfa2cc0640
                """
            ),
            (
                "pleaseletmein", "SodiumChloride", 14, 8, 1,
                """
                7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2d5432955613f0fcf62d49705242a9af9\
                e61e85dc0d651e40dfcf017b45575887
                """
            ),
            (
                "", "", 4, 1, 1,
                """
                77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442fcd0069ded0948f8326a753a0fc81f17\
                e8d3e0fb2e0d3628cf35e20c38d18906
                """
            ),
        ])
    func scrypt(passphrase: String, salt: String, logN: Int, r: Int, p: Int, expected: String) throws {
        let output = try Scrypt.derive(
            passphrase: secret(Array(passphrase.utf8)), salt: Array(salt.utf8), logN: logN, r: r, p: p, count: 64)
        #expect(hex(content(output)) == expected)
    }

    @Test("scrypt with the parameters of a new vault: 128 MiB")
    func scryptOfTheFormat() throws {
        let output = try Scrypt.derive(passphrase: secret([1]), salt: [2], logN: 17, r: 8, p: 1, count: 64)
        #expect(output.count == 64)
    }

    @Test(
        "scrypt parameters that RFC 7914 excludes, or that need over 1 GiB",
        arguments: [
            (0, 8, 1, 64), (-1, 8, 1, 64), (63, 8, 1, 64), (10, 0, 1, 64), (10, 8, 0, 64), (10, 8, 1, 0),
            (10, .max, 1, 64), (10, 8, .max, 64), (20, 9, 1, 64), (21, 8, 1, 64), (10, 32, 1 << 20, 64),
        ])
    func scryptRefuses(logN: Int, r: Int, p: Int, count: Int) {
        #expect {
            try Scrypt.derive(passphrase: secret([1]), salt: [2], logN: logN, r: r, p: p, count: count)
        } throws: {
            if case .invalidInput? = $0 as? CryptoError { true } else { false }
        }
    }
}
