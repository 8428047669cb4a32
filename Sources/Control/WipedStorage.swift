internal import Glibc

/// Memory that is zeroed when it is given back: what lies in it may be a secret. One thread at a time.
final class WipedStorage {
    let buffer: UnsafeMutableRawBufferPointer

    init(capacity: Int) {
        buffer = .allocate(byteCount: capacity, alignment: 1)
        buffer.initializeMemory(as: UInt8.self, repeating: 0)
    }

    deinit {
        wipe(0..<buffer.count)
        buffer.deallocate()
    }

    /// explicit_bzero(3), which the compiler keeps.
    func wipe(_ range: Range<Int>) {
        guard let base = buffer.baseAddress else { return }
        explicit_bzero(base + range.lowerBound, range.count)
    }

    /// memmove(3) of `range` to the front.
    func moveToFront(_ range: Range<Int>) {
        guard let base = buffer.baseAddress else { return }
        memmove(base, base + range.lowerBound, range.count)
        wipe(range.count..<range.upperBound)
    }
}
