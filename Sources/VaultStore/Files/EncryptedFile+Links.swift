internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Files with several names. The log knows a file by its id. A copy of a vault that keeps no hard links (rsync without -H, Syncthing)
/// makes several files of such a file, all with its id (FileFormat, Header-8).
extension EncryptedFile {
    /// Marks the file in its header, before it gets a second name. Its times stay.
    /// - Throws: `EROFS`, and errors of writing the header.
    package func markLinked() throws(StoreError) {
        try store.admitChange()
        try writing.withLock { (state) throws(StoreError) in
            if state.header.isLinked { return }
            let writer = if let writer = state.writer { writer } else { try reader.reopenedForWriting() }
            try keepingAttributes(writer) { (_) throws(StoreError) in
                try writeHeader(&state, writer) { $0.isLinked = true }
            }
        }
    }

    /// Returns true if other files may have this file's id, and the log's entries are theirs too.
    func mayHaveCopies(_ status: stat) -> Bool {
        status.st_nlink == 1 && writing.withLock { $0.header.isLinked }
    }

    /// Gives a file that had several names and has one, or has the id of another one in the log, an id of its own, durably. Its
    /// secret, content and times stay.
    ///
    /// To be called when a file is first opened since the mount, before it has entries in the log.
    /// - Returns: the file with its new id, which replaces this object. Nil if this one keeps its id.
    package func withOwnID() throws(StoreError) -> EncryptedFile? {
        // Entries of two files with one id could not be told apart.
        let isShared = store.log.file(fileID).map { $0 !== self } ?? false
        let isCopy = isShared ? true : mayHaveCopies(try reader.status())
        guard isCopy, !isLogged, !store.isReadOnly else { return nil }
        try store.admitChange()
        let writer = try reader.reopenedForWriting()
        try writing.withLock { (state) throws(StoreError) in
            let cipher = try store.keyRing.classCipher(state.header.protectionClass, epoch: state.header.epoch)
            let header = try StoreError.ofFormat(state.header.withNewID(classCipher: cipher))
            try keepingAttributes(writer) { (_) throws(StoreError) in
                try writeHeader(&state, writer) { $0 = header }
            }
        }
        try writer.synchronize(dataOnly: true)
        return try EncryptedFile.open(reader, in: store)
    }
}
