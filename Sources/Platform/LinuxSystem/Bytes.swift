extension Array where Element == UInt8 {
    /// Calls `body` with the array's bytes, with typed throws, which `withUnsafeBytes` lacks.
    @inlinable
    package func withBytes<Result, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try withUnsafeBufferPointer { (buffer) throws(Failure) -> Result in try body(UnsafeRawBufferPointer(buffer)) }
    }

    /// Calls `body` with the array's bytes, mutable, with typed throws.
    @inlinable
    package mutating func withMutableBytes<Result, Failure: Error>(
        _ body: (UnsafeMutableRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        try withUnsafeMutableBufferPointer { (buffer) throws(Failure) -> Result in
            try body(UnsafeMutableRawBufferPointer(buffer))
        }
    }
}

extension UnsafeRawBufferPointer {
    /// Returns the bytes of `range` as a buffer with indices from 0, without copying.
    @inlinable @inline(__always)
    package func slice(_ range: some RangeExpression<Int>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: self[range])
    }
}

extension UnsafeMutableRawBufferPointer {
    @inlinable @inline(__always)
    package static var empty: UnsafeMutableRawBufferPointer { UnsafeMutableRawBufferPointer(start: nil, count: 0) }

    /// Returns the bytes of `range` as a buffer with indices from 0, without copying.
    @inlinable @inline(__always)
    package func slice(_ range: some RangeExpression<Int>) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(rebasing: self[range])
    }

    /// Sets all bytes to `byte`.
    @inlinable @inline(__always)
    package func fill(with byte: UInt8) { initializeMemory(as: UInt8.self, repeating: byte) }
}
