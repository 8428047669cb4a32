/// The work that a transfer has done so far.
package struct TransferTotals: Equatable, Sendable {
    /// The numbers of objects that lack something that could not be kept.
    package struct Lost: Equatable, Sendable {
        package var owners = 0
        package var modes = 0
        package var times = 0
        package var attributes = 0
        package var devices = 0

        package var isNothing: Bool { self == Lost() }
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
    package var failures = 0
    /// Objects that did not verify: files with parts missing at the destination, and objects missing altogether.
    package var damaged = 0
    /// Objects that were compared and differ.
    package var different = 0
    package var lost = Lost()
    /// Bytes written, or compared, without holes.
    package var bytes: UInt64 = 0
    /// Bytes that were there already: of whole files, and of begun ones that were resumed.
    package var bytesPresent: UInt64 = 0

    package init() {}

    /// The number of objects seen, without directories.
    package var objects: Int { files + symbolicLinks + hardLinks + specialFiles + present + failures }
}
