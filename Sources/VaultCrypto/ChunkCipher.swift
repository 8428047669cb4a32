/// Encrypts and authenticates chunks (file format: "A file"): AES-256-CBC with residual block termination, and
/// Poly1305-AES over the ciphertext and the chunk's index.
///
/// One per thread: not `Sendable`. It keeps the schedules of the keys last used. For each chunk only the initial
/// vector is given. Nothing is allocated per chunk.
package final class ChunkCipher {
    let chainDecryption: CipherContext
    let chainEncryption: CipherContext
    /// AES of single blocks under the cipher key: residues, and chains in lockstep.
    let blockEncryption: CipherContext
    /// AES of single blocks under the MAC key: the one-time half of the authenticator's key.
    let maskEncryption: CipherContext
    let authenticator: Poly1305Context
    let scratch: ChunkScratch
    var unusedVectorBytes = 0
    private var keyIdentity: UInt64 = 0

    /// AES blocks decrypted so far, residues included.
    package internal(set) var blocksDecrypted: UInt64 = 0

    /// A cipher without keys. Throws `.library` if libcrypto or the kernel has no memory.
    package init() throws(CryptoError) {
        let library = try Library.loaded()
        chainDecryption = try CipherContext(library.aesCBC(keySize: 32), encrypts: false)
        chainEncryption = try CipherContext(library.aesCBC(keySize: 32), encrypts: true)
        blockEncryption = try CipherContext(library.aes256ECB, encrypts: true)
        maskEncryption = try CipherContext(library.aes256ECB, encrypts: true)
        authenticator = try Poly1305Context(library.poly1305)
        scratch = try ChunkScratch()
    }

    deinit { forgetKeys() }

    /// Wipes the key schedules and everything derived from keys. The next use sets them again.
    package func forgetKeys() {
        keyIdentity = 0
        chainDecryption.forgetKey()
        chainEncryption.forgetKey()
        blockEncryption.forgetKey()
        maskEncryption.forgetKey()
        authenticator.forgetKey()
        scratch.wipeKeys()
    }

    /// Sets the key schedules, unless they are those of `keys` already. Throws `.keyForgotten`.
    func use(_ keys: ChunkKeys) throws(CryptoError) {
        // Read before the keys are: were they forgotten and put back meanwhile, the next use sets them once more.
        let identity = keys.identity
        guard identity != 0 else { throw .keyForgotten }
        guard identity != keyIdentity else { return }
        // If a call fails half-way, the contexts hold keys of two files.
        keyIdentity = 0
        try chainDecryption.setKey(keys.cipherKey)
        try chainEncryption.setKey(keys.cipherKey)
        try blockEncryption.setKey(keys.cipherKey)
        try maskEncryption.setKey(keys.macKey)
        try keys.macR.withKey { (bytes) throws(CryptoError) in
            UnsafeMutableRawBufferPointer(start: scratch.authenticatorKey, count: 16).copyMemory(from: bytes)
        }
        keyIdentity = identity
    }

    /// AES(macKey; IV) of up to `maskCount` records, in one call, into the scratch's masks.
    func makeMasks(_ records: UnsafeRawPointer, recordSize: Int, count: Int) throws(CryptoError) {
        let masks = scratch.masks
        for position in 0..<count {
            let vector = (records + position * recordSize).loadUnaligned(as: Block.self)
            masks.storeBytes(of: vector, toByteOffset: position * 16, as: Block.self)
        }
        try maskEncryption.transform(masks, into: masks, size: count * 16)
    }

    /// Writes the tag of a record whose mask is at `position` of the masks.
    @inline(__always)
    func authenticate(
        _ ciphertext: UnsafeRawPointer, size: Int, chunkIndex: UInt64, maskPosition: Int,
        into tag: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let mask = scratch.masks.load(fromByteOffset: maskPosition * 16, as: Block.self)
        scratch.authenticatorKey.storeBytes(of: mask, toByteOffset: 16, as: Block.self)
        try authenticator.authenticate(
            ciphertext, size: size, trailer: chunkIndex, key: scratch.authenticatorKey, into: tag)
    }

    /// Residual block termination, the same both ways: XORs fewer than 16 bytes with the start of AES(cipherKey;
    /// `previous`), `previous` the last ciphertext block or, without one, the IV.
    func transformResidue(
        _ input: UnsafeRawPointer, size: Int, previous: UnsafeRawPointer, into output: UnsafeMutableRawPointer
    ) throws(CryptoError) {
        let block = scratch.block
        try blockEncryption.transform(previous, into: block, size: ChunkShape.blockSize)
        for offset in 0..<size {
            let byte = input.load(fromByteOffset: offset, as: UInt8.self)
            let mask = block.load(fromByteOffset: offset, as: UInt8.self)
            output.storeBytes(of: byte ^ mask, toByteOffset: offset, as: UInt8.self)
        }
    }
}

/// One AES block, as the XORs take it.
typealias Block = SIMD2<UInt64>
