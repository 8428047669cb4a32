internal import BackingStore
internal import CLinux
internal import Glibc
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

/// After a crash, before the mount is served: finds the files that the journal holds records of, puts those in place,
/// and frees the slots of files that are gone. Only a journal with slots in use makes it walk the tree.
package struct JournalRecovery {
    private let store: Store
    private var wanted: Set<UInt64>
    private var isComplete = true

    private init(_ store: Store) {
        self.store = store
        wanted = store.journal.retainedFiles
    }

    /// Best effort: what cannot be reached now keeps its slot until it is opened.
    package static func run(in store: Store) {
        guard store.journal.isHoldingRecords, !store.isReadOnly else { return }
        var recovery = JournalRecovery(store)
        recovery.walk()
        // A walk that missed a directory proves nothing.
        guard recovery.isComplete else { return }
        for fileID in recovery.wanted { store.forgetSlots(of: fileID) }
    }

    private mutating func walk() {
        guard let root = try? Descriptor(at: store.root.fd, [UInt8(ascii: ".")], flags: O_RDONLY | O_DIRECTORY) else {
            isComplete = false
            return
        }
        var path = [DirectoryReader(root)]
        while let last = path.indices.last, !wanted.isEmpty {
            let directory = path[last].directory
            guard let entry = next(&path[last]) else {
                path.removeLast()
                continue
            }
            if [.sidecar, .temporary, .reserved].contains(EntryName.kind(of: entry.name)) { continue }
            visit(entry, in: directory, &path)
        }
    }

    private mutating func next(_ reader: inout DirectoryReader) -> DirectoryReader.Entry? {
        do throws(StoreError) { return try reader.next() } catch {
            isComplete = false
            return nil
        }
    }

    private mutating func visit(
        _ entry: DirectoryReader.Entry, in directory: Descriptor, _ path: inout [DirectoryReader]
    ) {
        var status = stat()
        guard withCString(entry.name, { fstatat(directory.fd, $0, &status, AT_SYMLINK_NOFOLLOW) }) == 0 else {
            isComplete = false
            return
        }
        do {
            switch status.st_mode & S_IFMT {
            case S_IFDIR:
                path.append(
                    DirectoryReader(try Descriptor(at: directory.fd, entry.name, flags: O_RDONLY | O_DIRECTORY)))
            case S_IFREG where status.st_size >= off_t(FileHeader.size):
                let file = try Descriptor(at: directory.fd, entry.name, flags: O_RDONLY | O_NONBLOCK)
                // What is damaged is there, and keeps its slots.
                do { try recover(file) } catch .damaged {}
            default: break
            }
        } catch {
            isComplete = false
        }
    }

    private mutating func recover(_ descriptor: Descriptor) throws(StoreError) {
        let fileID = try EncryptedFile.unprovenFileID(of: descriptor)
        guard wanted.contains(fileID) else { return }
        // It is not gone. Where it cannot be opened or written its slots are needed on.
        wanted.remove(fileID)
        let file = try EncryptedFile.open(descriptor, in: store)
        // Now or not at all: once the mount is served the file may be opened again, and a seal by this object, which
        // knows nothing of that, would vouch for a length that is no more.
        if file.needsSeal { _ = try? file.seal(ifStill: file.lengthMark, isDurable: false) }
    }
}
