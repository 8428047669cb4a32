internal import Glibc
package import LinuxSystem
package import VaultFormat

/// The header of a backing file, as it is in the store.
package struct StoredHeader {
    package let header: FileHeader
    package let keys: FileKeys
    /// The backing file's size in bytes, just before the header was read.
    package let backingSize: UInt64

    /// Reads the header from the store and authenticates it. Data of the file that is read later is no older.
    /// - Throws: `.damaged`; `.locked` if the key of its class is forgotten; `.system` with errno.
    package init(of descriptor: Descriptor, keyRing: KeyRing) throws(StoreError) {
        let status = try descriptor.status()
        guard status.st_mode & S_IFMT == S_IFREG else { throw .damaged("not a regular file") }
        guard status.st_size >= off_t(ChunkLayout.headerSize) else {
            throw .damaged("header: \(status.st_size) bytes where 128 are needed")
        }
        descriptor.dropOldPages(status)
        let bytes = try descriptor.read(at: 0, count: FileHeader.size)
        guard bytes.count == FileHeader.size else { throw .damaged("header: cut short") }
        (header, keys) = try keyRing.unwrapHeader(bytes)
        backingSize = UInt64(status.st_size)
    }

    /// False if the header, which is not authenticated here, is sealed and fits the backing file's size.
    static func mayHaveTornTail(_ descriptor: Descriptor, _ layout: ChunkLayout) throws(StoreError) -> Bool {
        let status = try descriptor.status()
        descriptor.dropOldPages(status)
        let bytes = try descriptor.read(at: 0, count: FileHeader.size)
        guard bytes.count == FileHeader.size, let header = try? FileHeader.parse(bytes, epochs: .first) else {
            return true
        }
        return !header.isSealed
            || layout.backingSize(ofPlaintextLength: header.length) != UInt64(clamping: status.st_size)
    }

    /// The file id in the header, not authenticated: 8 bytes at 8, little-endian (FileFormat, File header).
    /// - Throws: errno of fstat(2) and pread(2).
    package static func unprovenFileID(of descriptor: Descriptor) throws(StoreError) -> UInt64 {
        descriptor.dropOldPages(try descriptor.status())
        return try start(of: descriptor)[8...].reversed().reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
    }

    /// The header's first 16 bytes, not authenticated. Filled up with zeros if the file is shorter.
    /// - Throws: errno of pread(2).
    package static func start(of descriptor: Descriptor) throws(StoreError) -> [UInt8] {
        let start = try descriptor.read(at: 0, count: 16)
        return start + [UInt8](repeating: 0, count: 16 - start.count)
    }

    /// True if a file's header, not authenticated, says that it was made without its class's key. Needs no key itself.
    /// - Throws: `.system` with errno.
    package static func claimsInboxWrap(in directory: Descriptor, _ entry: Component) throws(StoreError) -> Bool {
        try start(of: try Descriptor(at: directory, entry, flags: O_RDONLY | O_NONBLOCK))[6] == 1
    }

    /// Writes the first header of a file without one, durably. Owner, mode and times stay. The header is sealed, at
    /// length 0, so one write suffices, and a later open finds the file closed and empty.
    static func make(of pin: Descriptor, class protectionClass: ProtectionClass, in store: Store) throws(StoreError) {
        try store.admitChange()
        let before = try pin.status()
        var (header, keys) = try store.keyRing.makeHeader(protectionClass)
        header.isSealed = true
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        let writer = try pin.reopenedForWriting()
        let capability = BackingAttributes.capability(of: writer)
        try writer.truncate(to: 0)
        try writer.write(bytes, at: 0)
        try BackingAttributes.restore(writer, before, capability)
        try writer.synchronize(dataOnly: false)
    }
}
