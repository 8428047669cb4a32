internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

extension ProtectionClass {
    /// Where a file's header and a directory's record have the class (FileFormat, "File header", "Directory record").
    private static let offset = 5

    /// The class a file's header or a directory's record claims, not authenticated; nil where it has none. Needs no key.
    package static func claimed(
        inFileAt directory: Descriptor, _ entry: [UInt8], _ accessTimes: AccessTimes = AccessTimes()
    ) -> ProtectionClass? {
        guard let file = try? Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK) else { return nil }
        accessTimes.prepare(file: file)
        return try? withUnsafeTemporaryBytes(offset + 1) { (bytes) throws(StoreError) -> ProtectionClass? in
            guard try file.read(at: 0, into: bytes) == bytes.count else { return nil }
            return ProtectionClass(rawValue: bytes[offset])
        }
    }

    /// As `claimed(inFileAt:)`, of a directory.
    package static func claimed(byDirectory directory: Descriptor) -> ProtectionClass? {
        claimed(inFileAt: directory, OpenDirectory.recordEntry)
    }

    /// As `claimed(inFileAt:)`, of a symbolic link.
    package static func claimed(byLinkAt directory: Descriptor, _ entry: [UInt8]) -> ProtectionClass? {
        (try? directory.linkTarget(of: entry)).flatMap { LinkTarget.protectionClass(ofStored: $0) }
    }
}
