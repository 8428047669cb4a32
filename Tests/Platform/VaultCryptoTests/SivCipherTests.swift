import Testing
import VaultCrypto

@Suite struct SivCipherTests {
    static let key = Array((192...255).reversed()).map { UInt8($0) }

    struct Vector: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let data: [[UInt8]]
        let plaintext: [UInt8]
        let sealed: String
    }

    /// The inputs of RFC 5297 appendix A under a 64-byte key; reference: Python cryptography 48.
    static let vectors = [
        Vector(
            testDescription: "A.1",
            data: [(0x10..<0x28).map { UInt8($0) }], plaintext: bytes(hex: "112233445566778899aabbccddee"),
            sealed: "59e71a7723eaa441e91cb355cdeaba2b2ceadefbbc1c950948b8e8ed7c4a"),
        Vector(
            testDescription: "A.2",
            data: [
                bytes(
                    hex: "00112233445566778899aabbccddeeffdeaddadadeaddadaffeeddccbbaa99887766554433221100"),
                bytes(hex: "102030405060708090a0"), bytes(hex: "09f911029d74e35bd84156c5635688c0"),
            ],
            plaintext: Array("this is some plaintext to encrypt using SIV-AES".utf8),
            sealed: """
                1f74c3f617fc93c7244fe63734ad410a3f615c51643402789c3dde8d09c56ad81c6996e341fa863b3541cd39974a1f68\
                9a0cb578d6ba05845fd9766d34a483
                """),
        Vector(
            testDescription: "no data, one byte", data: [], plaintext: [0x2a],
            sealed: "ad8faee09b021204ca7369e7fd15cb92ee"),
        Vector(
            testDescription: "48 zero bytes", data: [Array("name".utf8)],
            plaintext: [UInt8](repeating: 0, count: 48),
            sealed: """
                de49cdeea5ce068bc0ab05ddc0c44ae8eb59246a57e7194a11390147fcbf6ff409c6529ad2e980e7d5fd75431fd6f6a0\
                cf8fec3d77ab24be88f95c27536748c2
                """),
    ]

    let cipher: SivCipher

    init() throws { cipher = try SivCipher(key: secret(Self.key)) }

    @Test("encrypts as the reference", arguments: vectors)
    func sealsAsTheReference(vector: Vector) throws {
        // Try twice, because the template must still work after the first message.
        for _ in 0..<2 {
            #expect(hex(try cipher.encrypt(vector.plaintext, associatedData: vector.data)) == vector.sealed)
            #expect(try cipher.decrypt(bytes(hex: vector.sealed), associatedData: vector.data) == vector.plaintext)
        }
        let kept = secret(vector.plaintext)
        #expect(hex(try cipher.encryptSecret(kept, associatedData: vector.data)) == vector.sealed)
        let opened = try cipher.decryptSecret(bytes(hex: vector.sealed), associatedData: vector.data)
        #expect(content(opened) == vector.plaintext)
    }

    @Test("encrypts every length around the blocks as the reference, and decrypts it")
    func lengths() throws {
        var sealed: [UInt8] = []
        for count in 1...100 {
            let plaintext = (0..<count).map { UInt8($0) }
            for data in [[], [[UInt8(count)]], [plaintext, [UInt8](repeating: 0, count: 16)]] {
                let one = try cipher.encrypt(plaintext, associatedData: data)
                #expect(try cipher.decrypt(one, associatedData: data) == plaintext)
                sealed += one
            }
        }
        // The reference is the SHA-256 of all of them by Python cryptography 48.
        #expect(hex(try Sha256.digest(sealed)) == "da13434eb556f36d18dbaac68b4a856a8443f17c0a8ba17413c34a6645785d79")
    }

    @Test("encrypts long messages as the reference, one after another")
    func longMessages() throws {
        var sealed: [UInt8] = []
        for count in [200, 255, 256, 257, 271, 272, 273, 511, 512, 513, 4096, 5000, 70_001] {
            let plaintext = (0..<count).map { UInt8(truncatingIfNeeded: $0 * 7 + count) }
            let one = try cipher.encrypt(plaintext, associatedData: [Array("name".utf8)])
            #expect(try cipher.decrypt(one, associatedData: [Array("name".utf8)]) == plaintext)
            sealed += one
        }
        // The SHA-256 of all of them by AESSIV of Python cryptography.
        #expect(hex(try Sha256.digest(sealed)) == "fc7cf2e2538e31fc92bece47f73149c4aa3c0cdbbc89bec2c60b0f95399ff7d3")
    }

    @Test("every change is refused", arguments: vectors)
    func everyChangeIsRefused(vector: Vector) {
        let sealed = bytes(hex: vector.sealed)
        for index in sealed.indices {
            var changed = sealed
            changed[index] ^= 1 << UInt8(index % 8)
            expectRefusal(changed, vector.data)
        }
        for count in sealed.indices { expectRefusal(Array(sealed[..<count]), vector.data) }
        expectRefusal(sealed + [0], vector.data)
        expectRefusal(sealed, vector.data + [[0]])
    }

    @Test("components keep their order and their boundaries")
    func dataIsAList() throws {
        let sealed = try cipher.encrypt([1, 2, 3], associatedData: [[1, 2], [3]])
        expectRefusal(sealed, [[3], [1, 2]])
        expectRefusal(sealed, [[1], [2, 3]])
        expectRefusal(sealed, [[1, 2, 3]])
        expectRefusal(sealed, [[1, 2]])
        expectRefusal(sealed, [])
        #expect(try cipher.decrypt(sealed, associatedData: [[1, 2], [3]]) == [1, 2, 3])
    }

    @Test("another key is refused")
    func anotherKeyIsRefused() throws {
        let sealed = try cipher.encrypt([1, 2, 3], associatedData: [])
        let other = try SivCipher(key: secret(0..<64))
        #expect(throws: CryptoError.doesNotAuthenticate) { try other.decrypt(sealed, associatedData: []) }
    }

    @Test("inputs that OpenSSL 3.0 processes wrongly without an error are refused")
    func emptyInputIsRefused() {
        #expect(throws: CryptoError.invalidInput("an empty plaintext for AES-256-SIV")) {
            try cipher.encrypt([], associatedData: [[1]])
        }
        #expect(throws: CryptoError.self) { try cipher.encrypt([1], associatedData: [[1], []]) }
        #expect(throws: CryptoError.doesNotAuthenticate) {
            try cipher.decrypt([UInt8](repeating: 0, count: 16), associatedData: [[1]])
        }
        #expect(throws: CryptoError.doesNotAuthenticate) { try cipher.decryptSecret([], associatedData: []) }
        #expect(throws: CryptoError.self) { try cipher.encrypt([1], associatedData: .init(repeating: [1], count: 127)) }
    }

    @Test("keys of other sizes are refused", arguments: [0, 32, 63, 65])
    func keysOfOtherSizesAreRefused(count: Int) {
        #expect(throws: CryptoError.invalidInput("an AES-256-SIV key of \(count) bytes")) {
            try SivCipher(key: secret(pattern(count)))
        }
    }

    @Test("many threads share a cipher")
    func manyThreadsShareACipher() async throws {
        try await withThrowingTaskGroup(of: Bool.self) { group in
            for worker in 0..<8 {
                group.addTask { [cipher] in
                    try (1...500).allSatisfy { count in
                        let plaintext = pattern(count)
                        let data = [[UInt8(worker)], plaintext]
                        let sealed = try cipher.encrypt(plaintext, associatedData: data)
                        return try cipher.decrypt(sealed, associatedData: data) == plaintext
                    }
                }
            }
            for try await isRight in group { #expect(isRight) }
        }
    }

    private func expectRefusal(_ sealed: [UInt8], _ data: [[UInt8]]) {
        #expect(throws: CryptoError.doesNotAuthenticate) { try cipher.decrypt(sealed, associatedData: data) }
        #expect(throws: CryptoError.doesNotAuthenticate) { try cipher.decryptSecret(sealed, associatedData: data) }
    }
}
