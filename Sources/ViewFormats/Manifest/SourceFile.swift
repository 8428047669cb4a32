internal import FileSystem
package import LinuxSystem

/// The ciphertext file behind a file of a view, opened for reading. Any thread.
package struct SourceFile: Sendable {
    package let descriptor: Descriptor
    /// The size in bytes when it was opened: nothing behind it is ever asked for.
    package let size: UInt64

    /// - Parameter size: at most 2^63 − 1, as fstat(2) tells it.
    package init(_ descriptor: Descriptor, size: UInt64) {
        precondition(size <= UInt64(Int64.max), "internal error: a file of \(size) bytes")
        self.descriptor = descriptor
        self.size = size
    }

    /// Fills `buffer` from a ciphertext offset (pread(2)).
    ///
    /// Throws `.malformed` where the file ends before: it has been cut since it was opened.
    func read(at ciphertextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer) throws(ViewError) {
        let had: Int
        do { had = try descriptor.read(at: ciphertextOffset, into: buffer) } catch { throw .store(error) }
        guard had == buffer.count else {
            let end = ciphertextOffset + UInt64(had)
            throw .malformed("the file ends after \(end) bytes, of the \(size) it had when it was opened")
        }
    }
}
