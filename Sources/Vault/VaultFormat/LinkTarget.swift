internal import LinuxSystem
package import VaultCrypto

/// Symbolic link targets as the backing link stores them (FileFormat, Symbolic links).
///
/// Stored: the class digit ‖ base64url(N ‖ SIV(link key of that class; `link`, N; target)), N 16 random bytes.
package enum LinkTarget {
    /// The longest target, in bytes: its stored form fits `PATH_MAX`.
    package static let maximumLength = 3000
    private static let nonceSize = 16
    private static let overhead = 32
    private static let context: [UInt8] = Array("link".utf8)

    /// Returns the stored form of `target`. Throws `tooLong` over 3000 bytes and `invalidValue` if it is empty or has a
    /// NUL. `linkCipher` is under the link key of the class.
    package static func encode(
        _ target: [UInt8], class protectionClass: ProtectionClass, linkCipher: SivCipher
    ) throws(FormatError) -> [UInt8] {
        try require(
            target.count <= maximumLength, .tooLong,
            "link target of \(target.count) bytes is longer than \(maximumLength)")
        try require(isValid(target), .invalidValue, "not a target that a link can have")
        let nonce = try cryptography("link target", SecureRandom.bytes(count: nonceSize))
        let sealed = try cryptography("link target", linkCipher.encrypt(target, associatedData: [context, nonce]))
        return Base64.url.encode(nonce + sealed, after: [digit(of: protectionClass)])
    }

    /// Returns the class named by a stored target, by which the caller chooses the cipher for `decode`, or nil.
    package static func protectionClass(ofStored stored: [UInt8]) -> ProtectionClass? {
        guard let first = stored.first else { return nil }
        return ProtectionClass.ofFiles.first { digit(of: $0) == first }
    }

    /// Returns the plaintext target. Throws `malformed` or `doesNotAuthenticate`.
    package static func decode(_ stored: [UInt8], linkCipher: SivCipher) throws(FormatError) -> [UInt8] {
        try require(protectionClass(ofStored: stored) != nil, .malformed, "link target: no protection class")
        guard let blob = Base64.url.decode(stored.dropFirst()) else {
            throw FormatError(.malformed, "link target: not canonical base64url")
        }
        try require(
            blob.count > overhead && blob.count <= overhead + maximumLength, .malformed,
            "link target: \(blob.count) bytes cannot be one")
        let (nonce, sealed) = (Array(blob[..<nonceSize]), Array(blob[nonceSize...]))
        let target = try cryptography("link target", linkCipher.decrypt(sealed, associatedData: [context, nonce]))
        try require(isValid(target), .malformed, "link target: not one that a link can have")
        return target
    }

    /// Returns the target's length (`st_size`) for a stored form of `count` bytes: ⌊3·(count−1)/4⌋ − 32. Needs no key.
    package static func length(ofStoredLength count: Int) -> Int {
        count > 1 ? max(0, Base64.url.decodedCount(count - 1) - overhead) : 0
    }

    private static func digit(of protectionClass: ProtectionClass) -> UInt8 {
        UInt8(ascii: "0") + protectionClass.rawValue
    }

    private static func isValid(_ target: [UInt8]) -> Bool { !target.isEmpty && !target.contains(0) }
}
