internal import Glibc
internal import LinuxSystem
internal import VaultFormat

/// Runs after a crash, before the mount is served. Finds the files that the journal has records of, puts these in place,
/// and frees the slots of files that no longer exist. Walks the tree only if slots are in use.
package struct JournalRecovery {
    private let store: Store
    private var wanted: Set<UInt64>
    private var isComplete = true

    private init(_ store: Store) {
        self.store = store
        wanted = store.journal.retainedFiles
    }

    /// Best effort: a file that cannot be reached now keeps its slots until it is opened.
    package static func run(in store: Store) {
        guard store.journal.isHoldingRecords, !store.isReadOnly else { return }
        var recovery = JournalRecovery(store)
        recovery.walk()
        // After a walk that missed a directory, a file that was not found may still exist.
        guard recovery.isComplete else { return }
        for fileID in recovery.wanted { store.forgetSlots(of: fileID) }
    }

    private mutating func walk() {
        do throws(StoreError) {
            var walk = BackingWalk(try store.root.inner([UInt8(ascii: ".")]))
            while !wanted.isEmpty, let found = walk.nextEntry(onFailure: { _, _, _ in isComplete = false }) {
                visit(found)
            }
        } catch {
            isComplete = false
        }
    }

    private mutating func visit(_ found: BackingWalk<Descriptor>.Found) {
        guard found.status.st_mode & S_IFMT == S_IFREG, found.status.st_size >= off_t(FileHeader.size) else { return }
        do {
            let file = try Descriptor(at: found.directory.fd, found.entry, flags: O_RDONLY | O_NONBLOCK)
            // A damaged file still exists, and keeps its slots.
            do { try recover(file) } catch .damaged {}
        } catch {
            isComplete = false
        }
    }

    private mutating func recover(_ descriptor: Descriptor) throws(StoreError) {
        let fileID = try EncryptedFile.unprovenFileID(of: descriptor)
        guard wanted.contains(fileID) else { return }
        // It exists. If it cannot be opened or written, its slots are still needed.
        wanted.remove(fileID)
        let file = try EncryptedFile.open(descriptor, in: store)
        // Only now: once the mount is served, the file may be opened again and change its length, and a seal by this
        // object would write the old length.
        if file.needsSeal { _ = try? file.seal(ifStill: file.lengthMark, isDurable: false) }
    }
}
