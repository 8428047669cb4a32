internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
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
        do throws(StoreError) {
            var walk = try BackingWalk(root: store.root) { _, _, _ in false }
            while !wanted.isEmpty, let found = walk.nextEntry() { visit(found) }
            if !walk.isComplete { isComplete = false }
        } catch {
            isComplete = false
        }
    }

    private mutating func visit(_ found: BackingWalk.Found) {
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
        // It is not gone. Where it cannot be opened or written its slots are needed on.
        wanted.remove(fileID)
        let file = try EncryptedFile.open(descriptor, in: store)
        // Now or not at all: once the mount is served the file may be opened again, and a seal by this object, which
        // knows nothing of that, would vouch for a length that is no more.
        if file.needsSeal { _ = try? file.seal(ifStill: file.lengthMark, isDurable: false) }
    }
}
