import Testing

@testable import VaultCrypto

@Suite("X25519") struct X25519Tests {
    @Test("RFC 7748, section 6.1: the public keys and the shared secret")
    func vectors() throws {
        let alice = secret(bytes(hex: "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
        let bob = secret(bytes(hex: "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
        let (alicePublic, bobPublic) = (try X25519.publicKey(of: alice), try X25519.publicKey(of: bob))
        #expect(hex(alicePublic) == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
        #expect(hex(bobPublic) == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
        for shared in [try X25519.sharedSecret(alice, bobPublic), try X25519.sharedSecret(bob, alicePublic)] {
            #expect(hex(content(shared)) == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
        }
    }

    @Test("Inbox-1: a public key that gives a secret of zeros is an error (RFC 7748, section 6.1)", arguments: [0, 1])
    func lowOrder(first: UInt8) throws {
        let key = try SecretBytes.random(count: 32)
        let publicKey = [first] + [UInt8](repeating: 0, count: 31)
        #expect(throws: CryptoError.doesNotAuthenticate) { try X25519.sharedSecret(key, publicKey) }
    }

    @Test("keys of other sizes, and a forgotten one, are refused")
    func refused() throws {
        let key = try SecretBytes.random(count: 32)
        #expect(throws: CryptoError.invalidInput("an X25519 key of 31 bytes")) {
            try X25519.sharedSecret(key, [UInt8](repeating: 9, count: 31))
        }
        #expect(throws: CryptoError.invalidInput("an X25519 key of 33 bytes")) {
            try X25519.publicKey(of: SecretBytes.random(count: 33))
        }
        key.forget()
        #expect(throws: CryptoError.keyForgotten) { try X25519.publicKey(of: key) }
        #expect(throws: CryptoError.keyForgotten) { try SecretBytes.joined(SecretBytes.random(count: 1), key) }
    }
}
