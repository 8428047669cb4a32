/// The work that a transfer has done so far. `--json` of `import` and `export` has the names of the fields.
package struct TransferTotals: Encodable, Equatable, Sendable {
    /// The numbers of objects that lack something that could not be kept.
    package struct NotKept: Encodable, Equatable, Sendable {
        package var owners = 0
        package var modes = 0
        package var times = 0
        package var attributes = 0
        package var devices = 0
    }

    package var files = 0
    package var directories = 0
    package var symbolicLinks = 0
    package var hardLinks = 0
    /// Fifos, sockets and devices.
    package var specialFiles = 0
    /// Objects that were there already.
    package var present = 0
    /// Objects that are not at the destination as in the source.
    package var failed = 0
    /// Objects that did not verify: files with parts missing at the destination, and objects missing altogether.
    package var damaged = 0
    /// Objects that were compared and are as in the source. Nil if nothing was compared.
    package var verified: Int?
    /// Objects that were compared and differ.
    package var different = 0
    package var notKept = NotKept()
    /// Bytes written, or compared, without holes.
    package var bytes: UInt64 = 0
    /// Bytes that were there already: of whole files, and of begun ones that were resumed.
    package var bytesPresent: UInt64 = 0

    package init() {}

    /// The number of objects seen, without directories.
    package var objects: Int { files + symbolicLinks + hardLinks + specialFiles + present + failed }

    /// Adds the result of comparing the copies with their source.
    package mutating func add(compared: TransferTotals) {
        verified = compared.files
        different = compared.different
        failed += compared.failed
    }
}
