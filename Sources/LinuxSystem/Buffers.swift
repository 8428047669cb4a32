extension UnsafeRawBufferPointer {
    /// The bytes of `range` as a buffer that starts at index 0. Does not copy.
    @inlinable @inline(__always)
    package func slice(_ range: some RangeExpression<Int>) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(rebasing: self[range])
    }
}

extension UnsafeMutableRawBufferPointer {
    /// The bytes of `range` as a buffer that starts at index 0. Does not copy.
    @inlinable @inline(__always)
    package func slice(_ range: some RangeExpression<Int>) -> UnsafeMutableRawBufferPointer {
        UnsafeMutableRawBufferPointer(rebasing: self[range])
    }

    /// Sets all bytes to `byte`.
    @inlinable @inline(__always)
    package func fill(with byte: UInt8) {
        initializeMemory(as: UInt8.self, repeating: byte)
    }
}
