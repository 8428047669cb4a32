internal import Glibc

/// Calls `body` with `count` zeroed bytes of memory that are wiped when it returns or throws: for secrets on their way
/// into secret memory.
func withWipedBuffer<Result, Failure: Error>(
    _ count: Int, _ body: (UnsafeMutableRawBufferPointer) throws(Failure) -> Result
) throws(Failure) -> Result {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: count, alignment: 16)
    buffer.initializeMemory(as: UInt8.self, repeating: 0)
    defer {
        if let base = buffer.baseAddress { explicit_bzero(base, buffer.count) }
        buffer.deallocate()
    }
    return try body(buffer)
}
