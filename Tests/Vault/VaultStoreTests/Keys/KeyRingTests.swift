import LinuxSystem
import Testing
import VaultCrypto
import VaultFormat

@testable import VaultStore

/// Keys wiped by a lock and restored by an unlock.
@Suite struct KeyRingTests {
    private let masterKey: SecretBytes
    private let ring: KeyRing

    init() throws {
        masterKey = try SecretBytes.random(count: 32)
        let secret = try SlotSecret.keyfile([UInt8](repeating: 7, count: 32))
        let configuration = try VaultConfiguration.make(
            chunkSize: 4096, masterKey: masterKey, slots: [SlotRequest(secret: secret)],
            created: "2026-01-01T00:00:00Z")
        ring = try KeyRing(masterKey: masterKey, configuration: configuration)
    }

    private func seal(_ protectionClass: ProtectionClass) throws -> [UInt8] {
        try ring.classCipher(protectionClass).encrypt([1, 2, 3], associatedData: [])
            + ring.linkCipher(protectionClass).encrypt([1, 2, 3], associatedData: [])
    }

    @Test(
        "Forgotten keys are refused from the announcement on, the others are not; restored keys are the same as before")
    func forgetAndRestore() throws {
        let before = try ProtectionClass.allCases.map { try seal($0) }
        let held = try ring.classCipher(.complete)
        ring.beginForgetting()
        for _ in 0..<2 {
            for protectionClass in [ProtectionClass.complete, .unlessOpen] {
                #expect(throws: StoreError.locked) { _ = try ring.classCipher(protectionClass) }
                #expect(throws: StoreError.locked) { _ = try ring.linkCipher(protectionClass) }
            }
            #expect(try [seal(.untilFirstUnlock), seal(.none), seal(.inbox)] == Array(before[2...]))
            ring.forget()
        }
        // The lock has wiped the keys of an earlier cipher, too.
        #expect(throws: CryptoError.keyForgotten) { _ = try held.encrypt([1], associatedData: []) }
        try ring.restore(masterKey: masterKey)
        #expect(try ProtectionClass.allCases.map { try seal($0) } == before)
    }

    @Test("All keys are forgotten on request, and are restored")
    func forgetEverything() throws {
        let before = try ProtectionClass.allCases.map { try seal($0) }
        let held = try ring.classCipher(.none)
        ring.beginForgetting(everything: true)
        ring.forget()
        #expect(ring.presentClasses == [])
        for protectionClass in ProtectionClass.allCases {
            #expect(throws: StoreError.locked) { _ = try ring.classCipher(protectionClass) }
            #expect(throws: StoreError.locked) { _ = try ring.linkCipher(protectionClass) }
        }
        #expect(throws: CryptoError.keyForgotten) { _ = try held.encrypt([1], associatedData: []) }
        let other = try SecretBytes.random(count: 32)
        #expect(throws: VaultError.self) { try ring.restore(masterKey: other) }
        #expect(ring.presentClasses == [])
        try ring.restore(masterKey: masterKey)
        #expect(try ProtectionClass.allCases.map { try seal($0) } == before)
        ring.beginForgetting()
        #expect(ring.presentClasses == [.untilFirstUnlock, .none, .inbox])
    }

    @Test("Inbox-2: without its class key a file can be made and not opened; with none, not made")
    func inbox() throws {
        func make() throws -> (bytes: [UInt8], keys: FileKeys) {
            let (header, keys) = try ring.makeHeader(.inbox)
            return (try header.serialized(keys: keys), keys)
        }
        #expect(try make().bytes[5...6] == [2, 0])
        ring.beginForgetting()
        let early = try make()
        ring.forget()
        let made = try make()
        #expect(
            made.bytes[5...6] == [2, 1] && early.bytes[5...6] == [2, 1] && made.bytes[64..<96] != early.bytes[64..<96])
        #expect(throws: StoreError.locked) { _ = try ring.unwrapHeader(made.bytes) }
        #expect(throws: StoreError.locked) { _ = try ring.makeHeader(.complete) }
        try ring.restore(masterKey: masterKey)
        for (bytes, keys) in [early, made] {
            let opened = try ring.unwrapHeader(bytes)
            #expect(opened.keys.attributeKey.hasSameBytes(as: keys.attributeKey))
            #expect(opened.header.protectionClass == .unlessOpen)
        }
        ring.beginForgetting(everything: true)
        ring.forget()
        #expect(throws: StoreError.locked) { _ = try ring.makeHeader(.inbox) }
        try ring.restore(masterKey: masterKey)
        #expect(try make().bytes[6] == 0)
        ring.beginForgetting()
        ring.forget()
        #expect(try make().bytes[6] == 1)
    }

    @Test("Another vault's master key restores nothing")
    func anotherKey() throws {
        ring.beginForgetting()
        ring.forget()
        let other = try SecretBytes.random(count: 32)
        #expect(throws: VaultError.self) { try ring.restore(masterKey: other) }
        #expect(ring.presentClasses == [.untilFirstUnlock, .none, .inbox])
        #expect(throws: StoreError.locked) { _ = try ring.classCipher(.complete) }
    }
}
