internal import Glibc
package import LinuxSystem
internal import Synchronization
package import VaultFormat

/// The protection class of one directory. All openings of the directory share one object, so that everything made
/// in it after a change of class gets the new class. Any thread.
package final class DirectoryClass: Sendable {
    private let current = Atomic<ProtectionClass>(.complete)
    /// Held while the record is read or replaced, so that a reader of the old record does not undo a change. No other
    /// lock is taken under it, except for the key ring's.
    private let record = Mutex<Void>(())

    package init() {}

    /// The class in the record when it was last read. Before that, `complete`, the strictest.
    package var value: ProtectionClass { current.load(ordering: .acquiring) }

    /// Runs `body`, which reads or replaces the record and returns the class in it.
    func update<Result>(
        _ body: () throws(StoreError) -> (ProtectionClass, Result)
    ) throws(StoreError) -> Result {
        try record.withLock { (_) throws(StoreError) -> Result in
            let (protectionClass, result) = try body()
            current.store(protectionClass, ordering: .releasing)
            return result
        }
    }
}

/// The class that an object claims, not authenticated. Needs no key. Nil if there is none.
extension ProtectionClass {
    /// Offset of the class in a file's header and in a directory's record (FileFormat, File header, Directory record).
    private static let offset = 5

    /// The class in a file's header or a directory's record.
    package static func claimed(
        inFileAt directory: Descriptor, _ entry: [UInt8], _ accessTimes: AccessTimes = AccessTimes()
    ) -> ProtectionClass? {
        guard let file = try? Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK) else { return nil }
        accessTimes.prepare(file: file)
        guard let bytes = try? file.read(at: 0, count: offset + 1), bytes.count > offset else { return nil }
        return ProtectionClass(rawValue: bytes[offset])
    }

    package static func claimed(byDirectory directory: Descriptor) -> ProtectionClass? {
        claimed(inFileAt: directory, OpenDirectory.recordEntry)
    }

    package static func claimed(byLinkAt directory: Descriptor, _ entry: [UInt8]) -> ProtectionClass? {
        (try? directory.linkTarget(of: entry)).flatMap { LinkTarget.protectionClass(ofStored: $0) }
    }
}
