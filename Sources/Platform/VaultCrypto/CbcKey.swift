internal import Synchronization

/// The AES key of CBC chains encrypted by another program: 16, 24 or 32 bytes. Any thread.
package final class CbcKey: Sendable {
    private static let lastIdentity = Atomic<UInt64>(0)

    private let currentIdentity: Atomic<UInt64>
    let bytes: SecretBytes
    /// Recognises the same key after it was forgotten.
    private let digest: SecretBytes

    /// Throws `.invalidInput` if the key does not have 16, 24 or 32 bytes.
    package init(_ bytes: SecretBytes) throws(CryptoError) {
        guard [16, 24, 32].contains(bytes.count) else { throw .invalidInput("an AES key of \(bytes.count) bytes") }
        currentIdentity = Atomic(Self.newIdentity())
        self.bytes = bytes
        digest = try Sha256.digest(bytes)
    }

    /// The size in bytes.
    package var size: Int { bytes.count }

    /// A number that distinguishes this key from all others in this process, and from itself before it was last
    /// forgotten, so that a decryptor with the old schedule does not use it again. 0 while the key is forgotten.
    package var identity: UInt64 { currentIdentity.load(ordering: .acquiring) }

    package var isForgotten: Bool { identity == 0 }

    /// Zeroes the key in place. A running ``CbcDecryptor`` continues to the end of its run, and keeps the schedule
    /// until its thread calls ``CbcDecryptor/forgetKeys()``. This and ``refill(from:)``: one thread at a time.
    package func forget() {
        currentIdentity.store(0, ordering: .releasing)
        bytes.forget()
    }

    /// Restores the forgotten key from a fresh copy. Returns false, and changes nothing, if `other` is another key.
    package func refill(from other: CbcKey) -> Bool {
        guard size == other.size, digest.hasSameBytes(as: other.digest) else { return false }
        currentIdentity.store(0, ordering: .releasing)
        bytes.refill(from: other.bytes)
        currentIdentity.store(Self.newIdentity(), ordering: .releasing)
        return true
    }

    private static func newIdentity() -> UInt64 { lastIdentity.add(1, ordering: .relaxed).newValue }
}

/// Decrypts parts of CBC chains (NIST SP 800-38A section 6.2) in whole AES blocks, without examining the padding.
///
/// One per thread: not `Sendable`. It keeps the schedule of the last key, so each part needs only its initial vector,
/// and no allocation.
package final class CbcDecryptor {
    private let library: Library
    private var context: CipherContext
    /// The key size of `context`, in bytes.
    private var keySize = 32
    /// The identity of the key whose schedule is in `context`, or 0.
    private(set) var keyIdentity: UInt64 = 0

    /// The number of AES blocks decrypted so far.
    package private(set) var blocksDecrypted: UInt64 = 0

    /// Makes a decryptor without a key. Throws `.library` if libcrypto lacks memory.
    package init() throws(CryptoError) {
        library = try Library.loaded()
        context = try CipherContext(library.aesCBC(keySize: 32), encrypts: false)
    }

    deinit { forgetKeys() }

    /// Wipes the key schedule and the rest of the last chain. The next use sets them again.
    package func forgetKeys() {
        keyIdentity = 0
        context.forgetKey()
    }

    /// Decrypts consecutive blocks of one chain.
    ///
    /// - Parameters:
    ///   - ciphertext: whole blocks.
    ///   - vector: 16 bytes: the preceding ciphertext block, or the chain's own initial vector.
    ///   - plaintext: exactly as large. It may be `ciphertext`, but must not overlap it otherwise.
    /// - Throws: `.invalidInput` for other sizes, `.keyForgotten`, `.library`.
    package func decrypt(
        _ ciphertext: UnsafeRawBufferPointer, vector: UnsafeRawPointer, key: CbcKey,
        into plaintext: UnsafeMutableRawBufferPointer
    ) throws(CryptoError) {
        let size = ciphertext.count
        guard size % 16 == 0, plaintext.count == size, size <= Int32.max else {
            throw .invalidInput("\(size) bytes of CBC ciphertext into \(plaintext.count)")
        }
        try use(key)
        guard let source = ciphertext.baseAddress, let destination = plaintext.baseAddress, size > 0 else { return }
        try context.setVector(vector)
        try context.transform(source, into: destination, size: size)
        blocksDecrypted &+= UInt64(size / 16)
    }

    /// Sets the key schedule, unless it is already that of `key`. Throws `.keyForgotten`.
    private func use(_ key: CbcKey) throws(CryptoError) {
        // Read the identity before the key's bytes. If the key is replaced in between, the identity is out of date, so
        // the next use sets the key schedule again.
        let identity = key.identity
        guard identity != 0 else { throw .keyForgotten }
        guard identity != keyIdentity else { return }
        keyIdentity = 0
        if key.size != keySize {
            context = try CipherContext(library.aesCBC(keySize: key.size), encrypts: false)
            keySize = key.size
        }
        try context.setKey(key.bytes)
        keyIdentity = identity
    }
}
