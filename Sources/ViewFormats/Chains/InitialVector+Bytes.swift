internal import LinuxSystem

extension InitialVector {
    /// The vector of exactly 16 bytes. Nil for another number.
    package init?(_ bytes: UnsafeRawBufferPointer) {
        guard bytes.count == 16 else { return nil }
        high = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 0, as: UInt64.self))
        low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
    }

    /// Writes its 16 bytes.
    func store(into bytes: UnsafeMutableRawBufferPointer) {
        bytes.storeBytes(of: high.bigEndian, toByteOffset: 0, as: UInt64.self)
        bytes.storeBytes(of: low.bigEndian, toByteOffset: 8, as: UInt64.self)
    }

    /// 32 digits.
    package var hexadecimal: String { Hexadecimal.encode(high) + Hexadecimal.encode(low) }
}
