/// What a transfer has done so far.
package struct TransferTotals: Equatable, Sendable {
    /// Of what could not be kept, how many objects lack it.
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
    /// What was there already.
    package var present = 0
    /// What is not at the destination as it is in the source.
    package var failures = 0
    /// What did not verify: files of which parts are missing at the destination, and what is missing altogether.
    package var damaged = 0
    /// What was compared with the source and is not the same.
    package var different = 0
    package var lost = Lost()
    /// Bytes written, or compared; holes count nothing.
    package var bytes: UInt64 = 0
    /// Bytes of files that were there already.
    package var bytesPresent: UInt64 = 0

    package init() {}

    /// Everything looked at but directories.
    package var objects: Int { files + symbolicLinks + hardLinks + specialFiles + present + failures }
}
