internal import Glibc
package import SystemPackage

/// Calls a function that returns −1 and sets errno on failure. Repeats the call if a signal interrupts it.
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

/// Does the same for a call with a NUL-terminated C string. `bytes` must not have a NUL.
/// - Throws: `.system` with errno.
@discardableResult
package func retrying<Result: FixedWidthInteger>(
    _ bytes: [UInt8], _ call: (UnsafePointer<CChar>) -> Result
) throws(StoreError) -> Result {
    try withCString(bytes) { (string) throws(StoreError) in try retrying { call(string) } }
}

/// Returns errno of this thread's last failed call.
package func currentErrno() -> Errno { Errno(rawValue: errno) }

/// Writes all of `bytes` to a file, pipe or terminal at its current position (write(2)). On failure, a leading part may
/// have been written.
/// - Throws: `.system` with errno.
package func writeAll(_ bytes: [UInt8], to fd: Int32) throws(StoreError) {
    var rest = bytes[...]
    while !rest.isEmpty {
        let count = try retrying { rest.withUnsafeBytes { write(fd, $0.baseAddress, $0.count) } }
        if count == 0 { throw .system(.noSpace) }
        rest = rest.dropFirst(count)
    }
}

/// Calls `body` with `bytes` as a NUL-terminated C string, on the stack if it is short. `bytes` must not have a NUL.
/// - Throws: the error of `body`.
@inlinable
package func withCString<Result, Failure: Error>(
    _ bytes: [UInt8], _ body: (UnsafePointer<CChar>) throws(Failure) -> Result
) throws(Failure) -> Result {
    try withUnsafeTemporaryAllocation(of: CChar.self, capacity: bytes.count + 1) {
        (string) throws(Failure) -> Result in
        for index in 0..<bytes.count { string.initializeElement(at: index, to: CChar(bitPattern: bytes[index])) }
        string.initializeElement(at: bytes.count, to: 0)
        guard let base = string.baseAddress else { preconditionFailure("internal error: empty C string") }
        return try body(UnsafePointer(base))
    }
}

/// Returns the number of files that one part of a process may keep open: an eighth of the process's limit
/// (RLIMIT_NOFILE), 8 to `most`.
package func shareOfOpenFiles(atMost most: Int) -> Int {
    var files = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &files) == 0 else { return 8 }
    return max(8, min(most, Int(clamping: files.rlim_cur) / 8))
}
