internal import CLinux

/// A buffer through which a secret goes to or from the kernel, which cannot reach the memory that secrets lie in
/// (EFAULT): locked anonymous memory where the limit allows, wiped and unmapped at the end of its short life.
package struct KernelBuffer: ~Copyable {
    private let bytes: UnsafeMutableRawBufferPointer

    /// `count` zeros, at least one. Throws `.library` where the kernel gives no memory.
    package init(count: Int) throws(CryptoError) {
        guard count > 0 else { throw .invalidInput("a kernel buffer of \(count) bytes") }
        var locked: Int32 = 0
        guard let base = linux_map_secret_memory(count, &locked) else { throw .library(operation: "mmap") }
        bytes = UnsafeMutableRawBufferPointer(start: base, count: count)
    }

    /// A copy of a secret.
    package init(copying secret: SecretBytes) throws(CryptoError) {
        try self.init(count: secret.count)
        let target = bytes
        secret.withUnsafeBytes { target.copyMemory(from: $0) }
    }

    /// Calls `body` with the bytes, which are valid only until it returns.
    package borrowing func withUnsafeBytes<R, E: Error>(
        _ body: (UnsafeMutableRawBufferPointer) throws(E) -> R
    ) throws(E) -> R {
        try body(bytes)
    }

    deinit {
        if let base = bytes.baseAddress { linux_unmap_secret_memory(base, bytes.count) }
    }
}
