import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

@Suite struct LinkTargetTests {
    let vault: TestVault
    let cipher: SivCipher

    init() throws {
        vault = try TestVault()
        cipher = try vault.linkCipher()
    }

    @Test(
        "Links-1, Links-3: targets decode again, and their size needs no key",
        arguments: [1, 2, 3, 15, 16, 17, 28, 255, 2999, 3000])
    func roundTrip(length: Int) throws {
        let target = (0..<length).map { UInt8(1 + $0 % 255) }
        for protectionClass in ProtectionClass.ofFiles {
            let cipher = try vault.linkCipher(protectionClass)
            let stored = try LinkTarget.encode(target, class: protectionClass, linkCipher: cipher)
            #expect(LinkTarget.protectionClass(ofStored: stored) == protectionClass)
            #expect(LinkTarget.length(ofStoredLength: stored.count) == length)
            #expect(try LinkTarget.decode(stored, linkCipher: cipher) == target)
        }
    }

    @Test("Links-1: sizes of the specification, and the limit")
    func sizes() throws {
        let store = { (length: Int) in
            try LinkTarget.encode([UInt8](repeating: 0x61, count: length), class: .complete, linkCipher: cipher)
        }
        #expect(try store(28).count == 81)
        #expect(try store(3000).count == 4044)
        #expect(formatError { _ = try store(3001) }?.kind == .tooLong)
        #expect(formatError { _ = try store(0) }?.kind == .invalidValue)
        let withNul: [UInt8] = [0x61, 0, 0x62]
        _ = formatError { _ = try LinkTarget.encode(withNul, class: .complete, linkCipher: cipher) }
    }

    @Test("Links-1: an impossible target is refused in reading, under a valid SIV")
    func invalidSealed() throws {
        let nonce = try SecureRandom.bytes(count: 16)
        for target in [[0x61, 0, 0x62], [UInt8](repeating: 0x61, count: 3001)] {
            let sealed = try cipher.encrypt(target, associatedData: [ascii("link"), nonce])
            _ = formatError {
                _ = try LinkTarget.decode(ascii("1") + Base64.url.encode(nonce + sealed), linkCipher: cipher)
            }
        }
    }

    @Test("Links-2: one target is stored differently every time, as the specification defines")
    func fresh() throws {
        let stored = try (0..<20).map { _ in try LinkTarget.encode(ascii("a/b"), class: .none, linkCipher: cipher) }
        #expect(Set(stored).count == 20)
        let blob = try #require(Base64.url.decode(Array(stored[0].dropFirst())))
        let target = try cipher.decrypt(Array(blob[16...]), associatedData: [ascii("link"), Array(blob[..<16])])
        #expect(target == ascii("a/b"))
    }

    @Test("Links-2: every bit flipped is an error, or names another class's key")
    func bitFlips() throws {
        let stored = try LinkTarget.encode(ascii("../target"), class: .complete, linkCipher: cipher)
        for (bit, damaged) in stored.withOneBitChanged {
            guard let protectionClass = LinkTarget.protectionClass(ofStored: damaged) else { continue }
            let cipher = try vault.linkCipher(protectionClass)
            _ = formatError("bit \(bit)") { _ = try LinkTarget.decode(damaged, linkCipher: cipher) }
        }
        for count in stored.indices {
            _ = formatError { _ = try LinkTarget.decode(Array(stored[..<count]), linkCipher: cipher) }
        }
        _ = formatError { _ = try LinkTarget.decode(stored + ascii("="), linkCipher: cipher) }
    }

    @Test("Links-3, Conventions-5: sizes of data that is not a stored target")
    func hostileSizes() {
        for count in [Int.min, -1, 0, 1, 2, 43, 44] { #expect(LinkTarget.length(ofStoredLength: count) == 0) }
        #expect(LinkTarget.length(ofStoredLength: 45) == 1)
        #expect(LinkTarget.length(ofStoredLength: .max) > 0)
        #expect(LinkTarget.protectionClass(ofStored: []) == nil)
        #expect(LinkTarget.protectionClass(ofStored: ascii("0")) == nil)
        #expect(LinkTarget.protectionClass(ofStored: ascii("5")) == nil)
    }
}
