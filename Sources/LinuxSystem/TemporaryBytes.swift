/// A buffer on the stack for a short time. Typed throws, which the standard library's function lacks.
@inlinable
package func withUnsafeTemporaryBytes<Result, Failure: Error>(
    _ count: Int, _ body: (UnsafeMutableRawBufferPointer) throws(Failure) -> Result
) throws(Failure) -> Result {
    let outcome = withUnsafeTemporaryAllocation(byteCount: count, alignment: 16) {
        (buffer) -> Swift.Result<Result, Failure> in
        do throws(Failure) { return .success(try body(buffer)) } catch { return .failure(error) }
    }
    return try outcome.get()
}
