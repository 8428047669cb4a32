import Testing
import VaultCrypto

@testable import ViewFormats

/// Keys in memory, up to a maximum number.
@Suite struct KeyCacheTests {
    private func name(_ number: Int) -> KeyName {
        .path([UInt8("\(number)".utf8.count)] + "\(number)".utf8, cipher: nil)
    }

    @Test("Recently used keys stay")
    func order() {
        var cache = KeyCache(capacity: 4)
        for number in 0..<4 { cache.insert(KeyMaterial([UInt8(number)]), for: name(number)) }
        _ = cache.find(name(0))
        cache.insert(KeyMaterial([4]), for: name(4))
        #expect(cache.find(name(0))?.key.exposed == [0])
        #expect(cache.find(name(4))?.key.exposed == [4])
        #expect(cache.find(name(1)) == nil)
        cache.insert(KeyMaterial([9]), for: name(4))
        #expect(cache.find(name(4))?.key.exposed == [9])
        cache.removeAll()
        #expect(cache.find(name(4)) == nil)
    }

    @Test("However many keys come, it keeps a bounded number", arguments: [1, 2, 3, 64])
    func bounded(capacity: Int) {
        var cache = KeyCache(capacity: capacity)
        for number in 0..<500 {
            cache.insert(KeyMaterial([1]), for: name(number))
            #expect(cache.find(name(number)) != nil)
        }
        #expect((0..<500).count { cache.find(name($0)) != nil } <= capacity)
    }
}
