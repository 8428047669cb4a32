internal import FileSystem
internal import LinuxSystem
package import VaultCrypto

/// The salt that a file of `openssl enc` begins with: `Salted__` and 8 bytes (openssl-enc(1)).
package struct OpenSSLSalt: Equatable, Sendable {
    static let headerSize: UInt64 = 16
    static let missing = ViewError.malformed(
        "the file has no Salted__ header: not made by openssl enc with a passphrase")
    private static let magic = Array("Salted__".utf8)

    package let bytes: [UInt8]

    /// Reads a file's first 16 bytes. Any thread. Throws `.malformed`, `.store`.
    package init(of source: SourceFile) throws(ViewError) {
        guard source.size > 0 else { throw .malformed("the file is empty: it has no Salted__ header") }
        guard source.size >= Self.headerSize else { throw Self.missing }
        var header = [UInt8](repeating: 0, count: Int(Self.headerSize))
        try header.withMutableBytes { (header) throws(ViewError) in try source.read(at: 0, into: header) }
        guard header.starts(with: Self.magic) else { throw Self.missing }
        bytes = Array(header[Self.magic.count...])
    }

    /// The file's key, of 16, 24 or 32 bytes, and vector. Any thread; slow by design with PBKDF2.
    ///
    /// Throws `.store` as the derivation does, also where the passphrase is forgotten.
    package func derive(
        _ derivation: OpenSSLKeyDerivation, passphrase: SecretBytes, keySize: Int
    ) throws(ViewError) -> (key: CbcKey, vector: InitialVector) {
        do throws(CryptoError) {
            let (key, vector) = try derivation.derive(passphrase: passphrase, salt: bytes, keySize: keySize)
            guard let vector = vector.withUnsafeBytes({ InitialVector($0) }) else {
                preconditionFailure("internal error: a derived vector of other than 16 bytes")
            }
            return (try CbcKey(key), vector)
        } catch {
            throw .store(StoreError(error))
        }
    }
}
