package import VaultCrypto

/// The first 128 bytes of a backing file (FileFormat, File header): the wrapped file secret and the file's state.
///
/// A value: the wrapped part changes with the class alone (`rewrapped`); `length`, `isSealed`, `isSparse` and
/// `sealCounter` are the state, which `serialized(keys:)` writes under a new MAC.
package struct FileHeader: Sendable {
    package static let size = 128
    package static let magic: [UInt8] = Array("VFSF".utf8)
    /// Bytes 0…15, the associated data of the wrap.
    private static let identitySize = 16
    private static let wrappedSecret = 16..<64
    private static let reserved = 64..<96
    private static let authenticatedSize = 112
    private static let sealedFlag: UInt64 = 1
    private static let sparseFlag: UInt64 = 2

    /// The 128 bytes as parsed, first made or rewrapped: the wrapped part, and the bytes under the MAC.
    private var bytes: [UInt8]

    /// The class whose key wraps the file secret.
    package let protectionClass: ProtectionClass
    /// The key epoch of that key.
    package let epoch: UInt8
    /// The random id of the file: the journal's name for it. Never 0 in a file that vaultfs made.
    package let fileID: UInt64
    /// The authenticated plaintext length. 0, and written as 0, unless sealed.
    package var length: UInt64
    /// True if `length` is authenticated.
    package var isSealed: Bool
    /// True if all-zero records read as zeros.
    package var isSparse: Bool
    /// Grows by one at every write of the header. 56 bits.
    package var sealCounter: UInt64

    /// A header for a new, empty file: unsealed, not sparse, counter 0. Also returns its keys. `classCipher` is under
    /// the class key.
    package static func make(
        _ protectionClass: ProtectionClass, epoch: UInt8 = 0, classCipher: SivCipher, vault: VaultID
    ) throws(FormatError) -> (header: FileHeader, keys: FileKeys) {
        var fileID: UInt64 = 0
        // 0 marks a free journal slot, so a file of that id could not be journaled.
        while fileID == 0 {
            fileID = try cryptography("file id") { () throws(CryptoError) in try SecureRandom.integer() }
        }
        let identity = identity(protectionClass, epoch, fileID)
        let associatedData = [identity]
        let (secret, wrapped) = try cryptography("header: file secret") { () throws(CryptoError) in
            let secret = try SecretBytes.random(count: KeyDerivation.secretSize)
            return (secret, try classCipher.encryptSecret(secret, associatedData: associatedData))
        }
        let keys = try FileKeys(secret: secret, vault: vault)
        let blank = identity + wrapped + [UInt8](repeating: 0, count: size - identity.count - wrapped.count)
        let unauthenticated = FileHeader(
            bytes: blank, protectionClass: protectionClass, epoch: epoch, fileID: fileID, state: (0, 0))
        let bytes = try unauthenticated.serialized(keys: keys)
        let header = FileHeader(
            bytes: bytes, protectionClass: protectionClass, epoch: epoch, fileID: fileID, state: (0, 0))
        return (header, keys)
    }

    /// Checks the structure of exactly 128 bytes. Nothing is authenticated before `openKeys` has returned. `epochs` are
    /// the vault's.
    package static func parse(
        _ bytes: UnsafeRawBufferPointer, epochs: KeyEpochs = .first
    ) throws(FormatError) -> FileHeader {
        guard bytes.count == size else {
            throw FormatError(.malformed, "header: \(bytes.count) bytes instead of \(size)")
        }
        guard bytes.prefix(4).elementsEqual(magic) else { throw FormatError(.malformed, "header: no file magic") }
        guard bytes[4] == 1 else { throw FormatError(.newerVersion, "header: unknown version \(bytes[4])") }
        guard let protectionClass = ProtectionClass(rawValue: bytes[5]) else {
            throw FormatError(.malformed, "header: unknown protection class \(bytes[5])")
        }
        guard bytes[6] == 0 else { throw FormatError(.newerVersion, "header: unknown wrap \(bytes[6])") }
        guard epochs.contains(bytes[7]) else {
            throw FormatError(.newerVersion, "header: \(epochs.unknown(bytes[7]))")
        }
        guard bytes[reserved].allSatisfy({ $0 == 0 }) else {
            throw FormatError(.malformed, "header: reserved bytes are not zero")
        }
        let state = (length: bytes.littleEndian64(at: 96), word: bytes.littleEndian64(at: 104))
        let flags = state.word & 0xFF
        guard flags & ~(sealedFlag | sparseFlag) == 0 else {
            throw FormatError(.malformed, "header: unknown flags \(flags)")
        }
        guard flags & sealedFlag != 0 || state.length == 0 else {
            throw FormatError(.malformed, "header: unsealed, but with length \(state.length)")
        }
        return FileHeader(
            bytes: Array(bytes), protectionClass: protectionClass, epoch: bytes[7],
            fileID: bytes.littleEndian64(at: 8), state: state)
    }

    /// Unwraps the file secret, derives the keys, and verifies the MAC of the header as it was parsed.
    ///
    /// Throws `doesNotAuthenticate`, naming the part that failed. `classCipher` is under the key of `protectionClass`.
    package func openKeys(classCipher: SivCipher, vault: VaultID) throws(FormatError) -> FileKeys {
        let wrapped = Array(bytes[Self.wrappedSecret])
        let associatedData = [Array(bytes[..<Self.identitySize])]
        let secret = try cryptography("header: file secret") { () throws(CryptoError) in
            try classCipher.decryptSecret(wrapped, associatedData: associatedData)
        }
        let keys = try FileKeys(secret: secret, vault: vault)
        let expected = try Self.stateMac(of: Array(bytes[..<Self.authenticatedSize]), keys: keys)
        guard equalInConstantTime(expected, Array(bytes[Self.authenticatedSize...])) else {
            throw FormatError(.doesNotAuthenticate, "header: state mac does not verify")
        }
        return keys
    }

    /// The same header for another class. The file secret, and so all keys, stay. Only the wrapping key is another.
    ///
    /// `oldCipher` and `newCipher` are under the class keys of the header's epoch, `keys` those of the file. The caller
    /// raises `sealCounter`. Throws `doesNotAuthenticate` if `oldCipher` cannot decrypt the wrap.
    package func rewrapped(
        as newClass: ProtectionClass, from oldCipher: SivCipher, to newCipher: SivCipher, keys: FileKeys
    ) throws(FormatError) -> FileHeader {
        let wrapped = Array(bytes[Self.wrappedSecret])
        let oldAssociatedData = [Array(bytes[..<Self.identitySize])]
        let newIdentity = Self.identity(newClass, epoch, fileID)
        let rewrapped = try cryptography("header: file secret") { () throws(CryptoError) in
            let secret = try oldCipher.decryptSecret(wrapped, associatedData: oldAssociatedData)
            return try newCipher.encryptSecret(secret, associatedData: [newIdentity])
        }
        var result = FileHeader(
            bytes: newIdentity + rewrapped + bytes[Self.wrappedSecret.upperBound...], protectionClass: newClass,
            epoch: epoch, fileID: fileID, state: (0, 0))
        (result.length, result.isSealed, result.isSparse) = (length, isSealed, isSparse)
        result.sealCounter = sealCounter
        result.bytes = try result.serialized(keys: keys)
        return result
    }

    /// The 128 bytes of the current state, with a new MAC. The caller has raised `sealCounter`.
    package func serialized(keys: FileKeys) throws(FormatError) -> [UInt8] {
        var result = Array(bytes[..<Self.authenticatedSize])
        let flags = (isSealed ? Self.sealedFlag : 0) | (isSparse ? Self.sparseFlag : 0)
        result.storeLittleEndian64(isSealed ? length : 0, at: 96)
        result.storeLittleEndian64(flags | sealCounter << 8, at: 104)
        return result + (try Self.stateMac(of: result, keys: keys))
    }

    /// Bytes 0…15.
    private static func identity(_ protectionClass: ProtectionClass, _ epoch: UInt8, _ fileID: UInt64) -> [UInt8] {
        var identity = magic + [1, protectionClass.rawValue, 0, epoch, 0, 0, 0, 0, 0, 0, 0, 0]
        identity.storeLittleEndian64(fileID, at: 8)
        return identity
    }

    /// The 16 bytes that authenticate bytes 0…111.
    private static func stateMac(of authenticated: [UInt8], keys: FileKeys) throws(FormatError) -> [UInt8] {
        let mac = try cryptography("header: state mac") { () throws(CryptoError) in
            try HmacSha256.authenticate(authenticated, key: keys.stateKey)
        }
        return Array(mac.prefix(size - authenticatedSize))
    }

    /// `state.word` is bytes 104…111: the flags, and the counter above them.
    private init(
        bytes: [UInt8], protectionClass: ProtectionClass, epoch: UInt8, fileID: UInt64,
        state: (length: UInt64, word: UInt64)
    ) {
        self.bytes = bytes
        self.epoch = epoch
        self.protectionClass = protectionClass
        self.fileID = fileID
        length = state.length
        isSealed = state.word & Self.sealedFlag != 0
        isSparse = state.word & Self.sparseFlag != 0
        sealCounter = state.word >> 8
    }
}
