import Foundation
import TestSupport
import Testing
import VaultCrypto

@testable import ViewFormats

/// Files made by `openssl enc` and Python's `cryptography`.
@Suite struct ForeignToolTests {
    static let counts = [0, 1, 16, 4096, 100_003]
    static let passphrase = "correct horse battery staple"
    let place: ViewPlace

    init() throws { place = try ViewPlace() }

    private func openssl(_ options: [String]) throws {
        try Command(
            ["openssl", "enc"] + options + ["-in", place.directory.appending("plain")]
                + ["-out", place.directory.appending("file")]
        ).run().succeeded()
    }

    @Test("openssl enc -K -iv", arguments: [16, 24, 32], counts)
    func keyAndVector(keySize: Int, count: Int) throws {
        let test = try TestKey(size: keySize)
        let plaintext = pattern(count)
        try place.write(plaintext, to: "plain")
        try openssl(["-aes-\(keySize * 8)-cbc", "-K", hex(test.bytes), "-iv", hex(test.vector.bytes)])
        let source = try place.source()
        let map = try ChainFormat.stream(of: source, vector: test.vector, padding: .pkcs7, key: test.key)
        try place.expect(source, map, [test.key], reads: plaintext)
    }

    static let derivations: [(OpenSSLKeyDerivation, [String])] = [
        (.bytesToKey(.md5), ["-md", "md5"]), (.bytesToKey(.sha256), ["-md", "sha256"]),
        (.bytesToKey(.sha512), ["-md", "sha512"]), (.bytesToKey(.sha256), []),
        (.pbkdf2(.sha256, iterations: 10_000), ["-pbkdf2"]),
        (.pbkdf2(.md5, iterations: 10_000), ["-pbkdf2", "-iter", "10000", "-md", "md5"]),
        (.pbkdf2(.sha512, iterations: 2000), ["-pbkdf2", "-iter", "2000", "-md", "sha512"]),
    ]

    @Test("openssl enc -pass", arguments: derivations, [16, 24, 32])
    func passphrase(derivation: (OpenSSLKeyDerivation, [String]), keySize: Int) throws {
        let plaintext = pattern(30_000)
        try place.write(plaintext, to: "plain")
        let passfile = try place.directory.write("pass", Self.passphrase + "\n")
        try openssl(["-aes-\(keySize * 8)-cbc", "-pass", "file:\(passfile)"] + derivation.1)
        let source = try place.source()
        let secret = Array(Self.passphrase.utf8).withUnsafeBytes { SecretBytes(copying: $0) }
        let salt = try ChainFormat.salt(of: source).bytes
        let (bytes, iv) = try derivation.0.derive(passphrase: secret, salt: salt, keySize: keySize)
        let key = try CbcKey(bytes)
        let vector = try #require(iv.withUnsafeBytes { InitialVector($0) })
        let map = try ChainFormat.stream(of: source, from: 16, vector: .bytes(vector), padding: .pkcs7, key: key)
        try place.expect(source, map, [key], reads: plaintext)
    }

    /// Splits standard input into chunks and encrypts each separately: plain, out, chunk size, key, vector, padding.
    private static let chunker = """
        import sys
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        from cryptography.hazmat.primitives.padding import PKCS7
        plain, out, size, key, vector, padded = sys.argv[1:]
        size, key, vector = int(size), bytes.fromhex(key), bytes.fromhex(vector)
        with open(plain, 'rb') as source, open(out, 'wb') as target:
            while piece := source.read(size):
                if padded == 'pkcs7':
                    padder = PKCS7(128).padder()
                    piece = padder.update(piece) + padder.finalize()
                cipher = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
                target.write(cipher.update(piece) + cipher.finalize())
        """

    @Test(
        "Python's cryptography: chunks of AES-CBC",
        arguments: [(16, 4096, "pkcs7"), (24, 1000, "pkcs7"), (32, 65536, "pkcs7"), (32, 4096, "none")], counts)
    func chunks(shape: (keySize: Int, chunkSize: Int, padding: String), count: Int) throws {
        let test = try TestKey(size: shape.keySize)
        let plaintext = pattern(shape.padding == "none" ? count / 16 * 16 : count)
        try place.write(plaintext, to: "plain")
        try Command([
            Products.python, "-c", Self.chunker, place.directory.appending("plain"), place.directory.appending("file"),
            "\(shape.chunkSize)", hex(test.bytes), hex(test.vector.bytes), shape.padding,
        ]).run().succeeded()
        let source = try place.source()
        let map = try ChainFormat.chunks(
            of: source, chunkSize: UInt64(shape.chunkSize), vector: test.vector,
            padding: shape.padding == "none" ? .none : .pkcs7, key: test.key)
        try place.expect(source, map, [test.key], reads: plaintext)
    }

    @Test("The AESCrypt-ObjC convention: the passphrase's SHA-256 is the key, the vector zero")
    func hashedPassphrase() throws {
        let plaintext = pattern(50_000)
        try place.write(plaintext, to: "plain")
        let secret = Array(Self.passphrase.utf8).withUnsafeBytes { SecretBytes(copying: $0) }
        let key = try CbcKey(Sha256.digest(secret))
        let digest = try Command(["sha256sum"], input: Self.passphrase).run().succeeded().output.prefix(64)
        try openssl(["-aes-256-cbc", "-K", String(digest), "-iv", hex(InitialVector.zero.bytes)])
        let source = try place.source()
        let map = try ChainFormat.chunks(
            of: source, chunkSize: 16 << 20, vector: .zero, padding: .pkcs7, key: key)
        try place.expect(source, map, [key], reads: plaintext)
    }
}
