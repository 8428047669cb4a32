import Glibc

/// A small generator with a seed, to repeat a failing case.
package struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        // splitmix64 (Steele, Lea, Flood 2014)
        state &+= 0x9E37_79B9_7F4A_7C15
        var z = state
        z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
        z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
        return z ^ (z >> 31)
    }

    package mutating func bytes(_ count: Int) -> [UInt8] {
        // This is fast, because tests make megabytes of random bytes.
        [UInt8](unsafeUninitializedCapacity: count + 8) { buffer, initialized in
            let bytes = UnsafeMutableRawBufferPointer(buffer)
            for offset in stride(from: 0, to: count, by: 8) {
                bytes.storeBytes(of: next(), toByteOffset: offset, as: UInt64.self)
            }
            initialized = count
        }
    }
}

/// Returns bytes that identify their position.
package func pattern(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    var generator = SeededGenerator(seed: seed)
    return generator.bytes(count)
}

/// Returns `count` bytes, a multiple of 8, in which a word is repeated.
package func repeating(_ word: UInt64, count: Int) -> [UInt8] {
    [UInt8](unsafeUninitializedCapacity: count) { buffer, initialized in
        let bytes = UnsafeMutableRawBufferPointer(buffer)
        for offset in stride(from: 0, to: count, by: 8) {
            bytes.storeBytes(of: word, toByteOffset: offset, as: UInt64.self)
        }
        initialized = count
    }
}

/// Compares bytes with memcmp(3), which is fast in unoptimized tests, too.
package func same(_ one: some Collection<UInt8>, _ other: some Collection<UInt8>) -> Bool {
    guard one.count == other.count else { return false }
    let result = one.withContiguousStorageIfAvailable { one in
        other.withContiguousStorageIfAvailable { other in
            guard let first = one.baseAddress, let second = other.baseAddress else { return true }
            return memcmp(first, second, one.count) == 0
        }
    }
    return (result ?? nil) ?? one.elementsEqual(other)
}

/// Compares arrays in the same way. An unoptimized test calls the standard library's generic operator for each byte.
package func == (one: [UInt8], other: [UInt8]) -> Bool { same(one, other) }

package func == (one: [UInt8]?, other: [UInt8]?) -> Bool {
    switch (one, other) {
    case (nil, nil): true
    case (let one?, let other?): same(one, other)
    default: false
    }
}
