import Testing

@testable import VaultCrypto

@Suite struct SecretBytesTests {
    @Test("holds a copy", arguments: [0, 1, 16, 31, 32, 33, 64, 65, 128, 129, 256, 257, 4096, 100_000])
    func holdsACopy(count: Int) {
        let original = pattern(count)
        let copy = secret(original)
        #expect(copy.count == count)
        #expect(content(copy) == original)
    }

    @Test("starts zeroed")
    func startsZeroed() throws {
        for _ in 0..<300 {
            try withExtendedLifetime(secret([UInt8](repeating: 0xff, count: 32))) {
                let fresh = try SecretBytes(count: 32) { _ in }
                #expect(content(fresh) == [UInt8](repeating: 0, count: 32))
            }
        }
    }

    @Test("slot is wiped when given back")
    func slotIsWipedWhenGivenBack() throws {
        let slot = try SecretMemory.allocate(count: 200)
        #expect(slot.capacity == 256)
        slot.base.initializeMemory(as: UInt8.self, repeating: 0xa5, count: 256)
        SecretMemory.deallocate(slot)
        // Slabs are never unmapped. Another test may own the slot by now, but not fill it with this value.
        let kept = UnsafeRawBufferPointer(start: slot.base, count: 256)
        #expect(kept.count { $0 == 0xa5 } < 16)
    }

    @Test("failed fill throws its error")
    func failedFillThrowsItsError() {
        #expect(throws: CryptoError.doesNotAuthenticate) {
            try SecretBytes(count: 64) { (_) throws(CryptoError) in throw .doesNotAuthenticate }
        }
        #expect(throws: CryptoError.self) { try SecretBytes(count: -1) { _ in } }
    }

    @Test("subrange is a copy")
    func subrangeIsACopy() {
        let whole = secret(0..<100)
        #expect(content(whole.subrange(10..<42)) == (10..<42).map { UInt8($0) })
        #expect(whole.subrange(100..<100).count == 0)
        #expect(content(whole.subrange(0..<100)) == content(whole))
    }

    @Test("random secrets differ")
    func randomSecretsDiffer() throws {
        #expect(content(try .random(count: 32)) != content(try .random(count: 32)))
    }

    @Test("the keys of thousands of open files are in few pages, and none overlap")
    func smallSecretsShareAPage() {
        let secrets = (0..<5000).map { secret(pattern($0 % 64 + 1)) }
        var pages: Set<UInt> = []
        var starts: Set<UInt> = []
        for secret in secrets {
            secret.withUnsafeBytes {
                let address = UInt(bitPattern: $0.baseAddress)
                pages.insert(address / 4096)
                starts.insert(address)
            }
        }
        #expect(starts.count == secrets.count)
        // 2,500 slots each of 32 and 64 bytes fill 60 pages. Other tests leave holes, and use some slots.
        #expect(pages.count < 200)
        for (index, secret) in secrets.enumerated() { #expect(content(secret) == pattern(index % 64 + 1)) }
    }

    @Test("many threads allocate at once")
    func manyThreadsAllocateAtOnce() async {
        await withTaskGroup(of: Bool.self) { group in
            for worker in 0..<8 {
                group.addTask {
                    (0..<2000).allSatisfy { round in
                        let bytes = [UInt8](repeating: UInt8(worker), count: round % 300)
                        let first = secret(bytes)
                        let second = secret(bytes)
                        return content(first) == bytes && content(second) == bytes
                    }
                }
            }
            for await isIntact in group { #expect(isIntact) }
        }
    }
}
