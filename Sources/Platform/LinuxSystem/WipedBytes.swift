internal import Glibc

/// The bytes of a secret on their way to secret memory. Zeroed when the last reference is released. They are filled in
/// place, because growing would leave copies. One thread at a time.
package final class WipedBytes {
    private var storage: [UInt8]
    package private(set) var count = 0

    package init(capacity: Int) { storage = [UInt8](repeating: 0, count: capacity) }

    deinit {
        storage.withUnsafeMutableBytes { buffer in
            if let base = buffer.baseAddress { explicit_bzero(base, buffer.count) }
        }
    }

    package var isEmpty: Bool { count == 0 }
    package var isFull: Bool { count == storage.count }

    /// Lets `body` append bytes. Returns their number, which `body` returns.
    /// - Throws: the error of `body`.
    @discardableResult
    package func fill<E: Error>(_ body: (UnsafeMutableRawBufferPointer) throws(E) -> Int) throws(E) -> Int {
        let start = count
        let added = try storage.withUnsafeMutableBufferPointer { (buffer) throws(E) -> Int in
            try body(UnsafeMutableRawBufferPointer(rebasing: UnsafeMutableRawBufferPointer(buffer)[start...]))
        }
        count += added
        return added
    }

    /// Removes the last byte if it is an LF. Returns true if it was.
    package func removeLineEnd() -> Bool {
        guard count > 0, storage[count - 1] == UInt8(ascii: "\n") else { return false }
        count -= 1
        storage[count] = 0
        return true
    }

    package func hasSameBytes(as other: WipedBytes) -> Bool { storage[..<count] == other.storage[..<other.count] }

    /// Calls `body` with an array of exactly the bytes, which `deinit` zeroes.
    /// - Throws: the error of `body`.
    package func withBytes<R, E: Error>(_ body: ([UInt8]) throws(E) -> R) throws(E) -> R {
        // This happens in place, so the array keeps its memory, and `deinit` zeroes these bytes.
        storage.removeSubrange(count...)
        return try body(storage)
    }
}
