internal import CLinux
internal import Glibc
internal import Synchronization
package import SystemPackage
internal import VaultCrypto

/// Calls a function that returns −1 and sets errno, again while a signal interrupts it.
/// - Throws: `StoreError.system` with errno.

@discardableResult
package func retrying<Result: FixedWidthInteger>(_ call: () -> Result) throws(StoreError) -> Result {
    while true {
        let result = call()
        if result != -1 { return result }
        let error = currentErrno()
        if error != .interrupted { throw .system(error) }
    }
}

/// errno of the last failed call of this thread.
package func currentErrno() -> Errno {
    Errno(rawValue: errno)
}

/// Calls `body` with `bytes` as a NUL-terminated C string; `bytes` hold no NUL.

package func withCString<Result, Failure: Error>(
    _ bytes: [UInt8], _ body: (UnsafePointer<CChar>) throws(Failure) -> Result
) throws(Failure) -> Result {
    let terminated = bytes + [0]
    return try terminated.withUnsafeBufferPointer { (buffer) throws(Failure) -> Result in
        guard let base = buffer.baseAddress else { preconditionFailure("internal error: empty C string") }
        return try base.withMemoryRebound(to: CChar.self, capacity: buffer.count) {
            (pointer) throws(Failure) -> Result in
            try body(pointer)
        }
    }
}
