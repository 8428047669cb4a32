internal import CLinux
internal import FileSystem
package import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

/// One directory of the vault: its descriptor and the keys its names are encrypted with. Any thread; the kernel lets
/// only one request at a time change a directory, so what is done here in steps is not interleaved.
package final class OpenDirectory: Sendable {
    static let recordEntry = Array("vaultfs.dir".utf8)

    /// O_PATH: needs no read permission, and holds the directory whatever becomes of its name.
    package let descriptor: Descriptor
    package let keys: DirectoryKeys
    /// Of its record, when it was opened.
    let epoch: UInt8
    /// Shared with all that have the directory open.
    let sharedClass: DirectoryClass
    package let store: Store
    /// CLOCK_MONOTONIC in milliseconds.
    package let openedAt = monotonicMilliseconds()
    let wasSwept = Atomic<Bool>(false)

    private init(
        descriptor: Descriptor, keys: DirectoryKeys, epoch: UInt8, sharedClass: DirectoryClass, store: Store
    ) {
        self.descriptor = descriptor
        self.keys = keys
        self.epoch = epoch
        self.sharedClass = sharedClass
        self.store = store
    }

    /// Authenticates the directory's record and derives its keys.
    /// - Parameters:
    ///   - descriptor: of a directory, O_PATH.
    ///   - sharedClass: the class as others that have this directory open see it; brought up to date.
    /// - Throws: `.damaged` where `vaultfs.dir` is missing or does not authenticate.
    package static func open(
        _ descriptor: Descriptor, isRoot: Bool, in store: Store, class sharedClass: DirectoryClass = DirectoryClass()
    ) throws(StoreError) -> OpenDirectory {
        var epoch: UInt8 = 0
        let keys = try sharedClass.update { () throws(StoreError) -> (ProtectionClass, DirectoryKeys) in
            let record: DirectoryRecord
            let bytes = try readRecord(of: descriptor).bytes
            do throws(FormatError) {
                record = try DirectoryRecord.parse(bytes, epochs: store.keyRing.epochs)
            } catch {
                throw StoreError(error)
            }
            guard record.isRoot == isRoot else {
                throw .damaged("vaultfs.dir: the root's flag is \(record.isRoot ? "set" : "not set")")
            }
            epoch = record.epoch
            return (record.protectionClass, try record.openKeys(store.keyRing))
        }
        return OpenDirectory(descriptor: descriptor, keys: keys, epoch: epoch, sharedClass: sharedClass, store: store)
    }

    /// The directory's record, authenticated.
    /// - Throws: `.damaged`; `.locked` where its class's key is forgotten.
    static func record(of directory: Descriptor, _ keyRing: KeyRing) throws(StoreError) -> DirectoryRecord {
        let bytes = try readRecord(of: directory).bytes
        let record: DirectoryRecord
        do throws(FormatError) { record = try DirectoryRecord.parse(bytes, epochs: keyRing.epochs) } catch {
            throw StoreError(error)
        }
        _ = try record.openKeys(keyRing)
        return record
    }

    /// The record's 64 bytes, and what stat(2) gives of it.
    static func readRecord(of directory: Descriptor) throws(StoreError) -> (bytes: [UInt8], status: stat) {
        let file: Descriptor
        do {
            // O_NONBLOCK: somebody may have put a fifo there.
            file = try Descriptor(at: directory.fd, recordEntry, flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.noSuchFileOrDirectory) {
            throw .damaged("vaultfs.dir: missing")
        } catch .system(.tooManySymbolicLinkLevels) {
            throw .damaged("vaultfs.dir: not a regular file")
        }
        let status = try file.status()
        guard status.st_mode & S_IFMT == S_IFREG, status.st_size == off_t(DirectoryRecord.size) else {
            throw .damaged("vaultfs.dir: not a regular file of \(DirectoryRecord.size) bytes")
        }
        var bytes = [UInt8](repeating: 0, count: DirectoryRecord.size)
        let count = try bytes.withMutableBytes { (buffer) throws(StoreError) -> Int in
            try file.read(at: 0, into: buffer)
        }
        guard count == bytes.count else { throw .damaged("vaultfs.dir: cut short") }
        return (bytes, status)
    }

    /// The same directory, opened for reading: for a listing, with a place of its own.
    package func reopenedForListing() throws(StoreError) -> OpenDirectory {
        let readable = try Descriptor(at: descriptor.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY)
        store.accessTimes.prepare(directory: readable)
        return OpenDirectory(descriptor: readable, keys: keys, epoch: epoch, sharedClass: sharedClass, store: store)
    }

    /// The backing entry of a plaintext name.
    /// - Throws: `ENAMETOOLONG`, `EINVAL`.
    package func encode(_ name: [UInt8]) throws(StoreError) -> EntryName.Encoded {
        guard name.count <= EntryName.maximumLength else { throw .system(.fileNameTooLong) }
        do { return try EntryName.encode(name, keys: keys) } catch { throw .system(.invalidArgument) }
    }

    /// fstatat(2) of a backing entry, not following a link.
    package func status(of entry: [UInt8]) throws(StoreError) -> stat {
        try descriptor.status(of: entry)
    }

    /// What a long name's sidecar holds; nil where there is none to be read.
    package func sidecarBlob(of entry: [UInt8]) -> [UInt8]? { descriptor.sidecarBlob(of: entry) }

    /// The plaintext target of a symbolic link in the directory `directory`.
    package static func linkTarget(
        at directory: Descriptor, _ entry: [UInt8], in store: Store
    ) throws(StoreError) -> [UInt8] {
        try store.keyRing.linkTarget(ofStored: try directory.linkTarget(of: entry)).target
    }
}

extension Descriptor {
    /// What a long name's sidecar holds; nil where there is none to be read.
    func sidecarBlob(of entry: [UInt8]) -> [UInt8]? {
        do throws(StoreError) { return try readSidecar(of: entry) } catch { return nil }
    }

    /// What a long name's sidecar holds; nil where there is none.
    func readSidecar(of entry: [UInt8]) throws(StoreError) -> [UInt8]? {
        let file: Descriptor
        do throws(StoreError) {
            file = try Descriptor(at: fd, EntryName.sidecar(of: entry), flags: O_RDONLY | O_NONBLOCK)
        } catch .system(.noSuchFileOrDirectory) {
            return nil
        }
        // The longest name gives 272 bytes; whatever is longer does not authenticate.
        var bytes = [UInt8](repeating: 0, count: 512)
        let count = try bytes.withMutableBytes { (buffer) throws(StoreError) -> Int in
            try file.read(at: 0, into: buffer)
        }
        bytes.removeLast(bytes.count - count)
        return bytes
    }
}
