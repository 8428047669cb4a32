/// What an export has done so far.
package struct ExportTotals: Equatable, Sendable {
    package var files = 0
    package var directories = 0
    package var links = 0
    /// Files and links that an export before has made.
    package var present = 0
    /// Files that are not whole at the destination, and what else is not there.
    package var failures = 0
    /// Bytes of plaintext written.
    package var bytes: UInt64 = 0
    /// Bytes of plaintext in what was begun by an export before, and those of `present`.
    package var bytesBefore: UInt64 = 0

    package init() {}
}
