internal import VaultCrypto

/// The first 64 bytes of a file header, and a whole directory record (FileFormat, File header, Directory record): 16
/// bytes of identity, and a secret encrypted under a class key with the identity as associated data.
///
/// Identity: magic 4 ‖ version 1 ‖ class ‖ one byte of the object's kind ‖ epoch ‖ 8 bytes of the object's kind.
struct WrappedSecret: Sendable {
    enum Kind {
        case file, directory

        var magic: [UInt8] { Array((self == .file ? "VFSF" : "VFSD").utf8) }
        var subject: String { self == .file ? "header" : "directory record" }
        fileprivate var secret: String { self == .file ? "header: file secret" : "directory record: secret" }
    }

    static let size = 64
    private static let identity = 0..<16

    let kind: Kind
    let bytes: [UInt8]
    /// The class whose key wraps the secret.
    let protectionClass: ProtectionClass
    var epoch: UInt8 { bytes[7] }

    /// Draws a secret. `classCipher` is under the class key.
    static func make(
        _ kind: Kind, _ protectionClass: ProtectionClass, detail: UInt8 = 0, epoch: UInt8, id: UInt64 = 0,
        classCipher: SivCipher
    ) throws(FormatError) -> (wrapped: WrappedSecret, secret: SecretBytes) {
        var identity = kind.magic + [1, 0, detail, epoch, 0, 0, 0, 0, 0, 0, 0, 0]
        identity.storeLittleEndian64(id, at: 8)
        let secret = try cryptography(kind.secret, SecretBytes.random(count: KeyDerivation.secretSize))
        return (try WrappedSecret(kind, identity, protectionClass, secret, classCipher), secret)
    }

    private init(
        _ kind: Kind, _ identity: [UInt8], _ protectionClass: ProtectionClass, _ secret: SecretBytes,
        _ cipher: SivCipher
    ) throws(FormatError) {
        var identity = identity
        identity[5] = protectionClass.rawValue
        (self.kind, self.protectionClass) = (kind, protectionClass)
        bytes = identity + (try cryptography(kind.secret, cipher.encryptSecret(secret, associatedData: [identity])))
    }

    /// Checks the structure of 64 bytes, except for the parts specific to the object's kind. Authenticates nothing.
    init(parsing bytes: [UInt8], _ kind: Kind, epochs: KeyEpochs) throws(FormatError) {
        let subject = kind.subject
        try require(
            bytes.starts(with: kind.magic), .malformed, "\(subject): no \(kind == .file ? "file" : "directory") magic")
        try require(bytes[4] == 1, .newerVersion, "\(subject): unknown version \(bytes[4])")
        let classes = kind == .file ? ProtectionClass.ofFiles : ProtectionClass.allCases
        guard let protectionClass = ProtectionClass(rawValue: bytes[5]), classes.contains(protectionClass) else {
            throw FormatError(.malformed, "\(subject): unknown protection class \(bytes[5])")
        }
        try require(epochs.contains(bytes[7]), .newerVersion, "\(subject): \(epochs.unknown(bytes[7]))")
        (self.kind, self.bytes, self.protectionClass) = (kind, bytes, protectionClass)
    }

    /// Decrypts the secret. Throws `doesNotAuthenticate`.
    func unwrap(_ classCipher: SivCipher) throws(FormatError) -> SecretBytes {
        let (wrapped, identity) = (Array(bytes[Self.identity.upperBound...]), Array(bytes[Self.identity]))
        return try cryptography(kind.secret, classCipher.decryptSecret(wrapped, associatedData: [identity]))
    }

    /// Wraps the secret under another class's key of the same epoch, or with another id. Throws `doesNotAuthenticate`.
    func rewrapped(
        as newClass: ProtectionClass? = nil, id: UInt64? = nil, from oldCipher: SivCipher, to newCipher: SivCipher
    ) throws(FormatError) -> WrappedSecret {
        var identity = Array(bytes[Self.identity])
        if newClass != nil, kind == .file { identity[6] = 0 }
        if let id { identity.storeLittleEndian64(id, at: 8) }
        return try WrappedSecret(kind, identity, newClass ?? protectionClass, unwrap(oldCipher), newCipher)
    }
}
