extension UnsafeRawBufferPointer {
    /// Returns the little-endian 64-bit integer at `position`, which needs no alignment.
    func littleEndian64(at position: Int) -> UInt64 {
        UInt64(littleEndian: loadUnaligned(fromByteOffset: position, as: UInt64.self))
    }
}

extension UnsafeMutableRawBufferPointer {
    /// Writes `value` as a little-endian 64-bit integer at `position`, which needs no alignment.
    func storeLittleEndian64(_ value: UInt64, at position: Int) {
        storeBytes(of: value.littleEndian, toByteOffset: position, as: UInt64.self)
    }
}

extension [UInt8] {
    func littleEndian64(at position: Int) -> UInt64 { withUnsafeBytes { $0.littleEndian64(at: position) } }

    mutating func storeLittleEndian64(_ value: UInt64, at position: Int) {
        withUnsafeMutableBytes { $0.storeLittleEndian64(value, at: position) }
    }
}
