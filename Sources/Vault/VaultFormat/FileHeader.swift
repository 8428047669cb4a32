package import VaultCrypto

/// The first 128 bytes of a backing file (FileFormat, File header): the wrapped file secret and the file's state.
///
/// A value. The wrapped secret changes only with the class (`rewrapped`) or the id (`withNewID`). `length`, `isSealed`,
/// `isSparse`, `isLinked` and `sealCounter` are the state, which `serialized(keys:)` writes under a new MAC.
package struct FileHeader: Sendable {
    package static let size = 128
    package static let magic = WrappedSecret.Kind.file.magic
    private static let ephemeralKeyRange = WrappedSecret.size..<96
    private static let authenticatedSize = 112
    private static let sealedFlag: UInt64 = 1
    private static let sparseFlag: UInt64 = 2
    private static let linkedFlag: UInt64 = 4

    private var wrapped: WrappedSecret
    /// The MAC of the state as it was parsed. Empty in a header made here.
    private var mac: [UInt8] = []

    package var protectionClass: ProtectionClass { wrapped.protectionClass }
    package var epoch: UInt8 { wrapped.epoch }
    /// The public key of a file made during a lock (FileFormat, Inbox). Nil if the class key wraps its secret.
    package private(set) var ephemeralKey: [UInt8]?
    /// The random id by which the log identifies the file. Never 0 in a file made by vaultfs.
    package private(set) var fileID: UInt64
    /// The plaintext length of a sealed file. Otherwise the durable length, up to which all chunks are durable.
    package var length: UInt64 = 0
    /// True if `length` is authenticated.
    package var isSealed = false
    /// True if all-zero records read as zeros.
    package var isSparse = false
    /// True if the file has or had several names. A copy of the vault without hard links then has its id several times.
    package var isLinked = false
    /// Grows by one at each seal. Other writes of the header keep it (FileFormat, Header-4). 56 bits.
    package var sealCounter: UInt64 = 0

    /// Makes a header for a new, empty file (unsealed, not sparse, counter 0), and returns it with its keys.
    /// `classCipher` is under the class key, or comes from `InboxKeys.makeWrap` together with `ephemeralKey`.
    /// - Throws: `cryptography`; `keyForgotten`.
    package static func make(
        _ protectionClass: ProtectionClass, epoch: UInt8 = 0, classCipher: SivCipher, ephemeralKey: [UInt8]? = nil,
        vault: VaultID
    ) throws(FormatError) -> (header: FileHeader, keys: FileKeys) {
        let fileID = try makeID()
        let (wrapped, secret) = try WrappedSecret.make(
            .file, protectionClass, detail: ephemeralKey == nil ? 0 : 1, epoch: epoch, id: fileID,
            classCipher: classCipher)
        let header = FileHeader(wrapped: wrapped, ephemeralKey: ephemeralKey, fileID: fileID)
        return (header, try FileKeys(secret: secret, vault: vault))
    }

    private static func makeID() throws(FormatError) -> UInt64 {
        var fileID: UInt64 = 0
        // 0 means "no file" (FileFormat, Header-6).
        while fileID == 0 { fileID = try cryptography("file id", SecureRandom.integer()) }
        return fileID
    }

    /// Checks the structure of exactly 128 bytes. Only `unwrapKeys` authenticates them. `epochs` are the vault's.
    /// - Throws: `malformed`, `newerVersion`.
    package static func parse(_ bytes: [UInt8], epochs: KeyEpochs = .first) throws(FormatError) -> FileHeader {
        try require(bytes.count == size, .malformed, "header: \(bytes.count) bytes instead of \(size)")
        let wrapped = try WrappedSecret(parsing: Array(bytes[..<WrappedSecret.size]), .file, epochs: epochs)
        try require(bytes[6] <= 1, .newerVersion, "header: unknown wrap \(bytes[6])")
        let ephemeralKey = bytes[6] == 1 ? Array(bytes[ephemeralKeyRange]) : nil
        try require(
            bytes[6] == 1 || bytes[ephemeralKeyRange].allSatisfy { $0 == 0 }, .malformed,
            "header: reserved bytes are not zero")
        try require(
            bytes[6] == 0 || wrapped.protectionClass == .unlessOpen, .malformed,
            "header: a public key with another class")
        let (length, state) = (bytes.littleEndian64(at: 96), bytes.littleEndian64(at: 104))
        let flags = state & 0xFF
        try require(flags & ~(sealedFlag | sparseFlag | linkedFlag) == 0, .malformed, "header: unknown flags \(flags)")
        return FileHeader(
            wrapped: wrapped, mac: Array(bytes[authenticatedSize...]), ephemeralKey: ephemeralKey,
            fileID: bytes.littleEndian64(at: 8), length: length,
            isSealed: flags & sealedFlag != 0, isSparse: flags & sparseFlag != 0,
            isLinked: flags & linkedFlag != 0, sealCounter: state >> 8)
    }

    /// Unwraps the file secret, derives the keys, and verifies the MAC of the parsed header. `classCipher` is under the
    /// key of `protectionClass`, or of `ephemeralKey`. Throws `doesNotAuthenticate`, naming the failed part.
    package func unwrapKeys(classCipher: SivCipher, vault: VaultID) throws(FormatError) -> FileKeys {
        let keys = try FileKeys(secret: wrapped.unwrap(classCipher), vault: vault)
        try require(equalInConstantTime(stateMac(keys), mac), .doesNotAuthenticate, "header: its length is damaged")
        return keys
    }

    /// Returns the same header for another class. The file secret, and so all keys, stay: only the wrapping key
    /// changes. `oldCipher` opens this header, `newCipher` is under the new class's key of the same epoch. Throws
    /// `doesNotAuthenticate` if `oldCipher` cannot decrypt the wrap.
    package func rewrapped(
        as newClass: ProtectionClass, from oldCipher: SivCipher, to newCipher: SivCipher
    ) throws(FormatError) -> FileHeader {
        var result = self
        result.wrapped = try wrapped.rewrapped(as: newClass, from: oldCipher, to: newCipher)
        result.ephemeralKey = nil
        return result
    }

    /// Returns the header with a new id, for a file no longer linked. Throws `doesNotAuthenticate` if `classCipher` is
    /// wrong.
    package func withNewID(classCipher: SivCipher) throws(FormatError) -> FileHeader {
        var result = self
        result.fileID = try Self.makeID()
        result.wrapped = try wrapped.rewrapped(id: result.fileID, from: classCipher, to: classCipher)
        result.isLinked = false
        return result
    }

    /// Returns the 128 bytes of the current state, with a new MAC.
    /// - Throws: `cryptography`; `keyForgotten`.
    package func serialized(keys: FileKeys) throws(FormatError) -> [UInt8] { authenticated + (try stateMac(keys)) }

    /// Bytes 0…111, the input of the MAC.
    private var authenticated: [UInt8] {
        var result = wrapped.bytes + [UInt8](repeating: 0, count: Self.authenticatedSize - WrappedSecret.size)
        let flags =
            (isSealed ? Self.sealedFlag : 0) | (isSparse ? Self.sparseFlag : 0)
            | (isLinked ? Self.linkedFlag : 0)
        if let ephemeralKey { result.replaceSubrange(Self.ephemeralKeyRange, with: ephemeralKey) }
        result.storeLittleEndian64(length, at: 96)
        result.storeLittleEndian64(flags | sealCounter << 8, at: 104)
        return result
    }

    private func stateMac(_ keys: FileKeys) throws(FormatError) -> [UInt8] {
        let mac = try cryptography("header: state mac", HmacSha256.authenticate(authenticated, key: keys.stateKey))
        return Array(mac.prefix(Self.size - Self.authenticatedSize))
    }
}
