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

    /// Gives a file that had several names and has one a new id, durably, before the log has an entry of it. Its secret, content
    /// and times stay.
    func replaceSharedID(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        guard !isLogged, try writer.status().st_nlink == 1 else { return }
        let cipher = try store.keyRing.wrapCipher(of: state.header)
        let header = try StoreError.ofFormat(state.header.withNewID(classCipher: cipher))
        try keepingAttributes(writer) { (_) throws(StoreError) in
            try writeHeader(&state, writer) { $0 = header }
        }
        records.fileID.store(header.fileID, ordering: .releasing)
        do throws(StoreError) { try writer.synchronize(dataOnly: true) } catch {
            // The next sync writes the header again.
            countFailedBackingSync()
            throw error
        }
    }
}
