internal import Glibc
package import SystemPackage

/// Calls a function that returns −1 and sets errno. Repeats the call if a signal interrupts it.
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

/// errno of this thread's last failed call.
package func currentErrno() -> Errno {
    Errno(rawValue: errno)
}

/// Writes all of `bytes` to a file, pipe or terminal at its current position (write(2)). If it fails, a leading part
/// may have been written.
package func writeAll(_ bytes: [UInt8], to fd: Int32) throws(StoreError) {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = try retrying { rest.withUnsafeBytes { write(fd, $0.baseAddress, $0.count) } }
        if count == 0 { throw .system(.noSpace) }
        rest = rest.dropFirst(count)
    }
}

/// Calls `body` with `bytes` as a NUL-terminated C string. `bytes` must hold no NUL.
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
