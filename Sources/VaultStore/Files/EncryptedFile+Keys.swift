internal import Glibc
package import LinuxSystem
internal import Synchronization
package import VaultFormat

/// Keys and the protection class.
extension EncryptedFile {
    /// False from `forgetKeys` until `restoreKeys`.
    package var hasKeys: Bool { !keys.isForgotten }

    /// Wipes the keys of a file that stays open. Waits for a running writer or seal.
    package func forgetKeys() { writing.withLock { _ in keys.forget() } }

    /// Derives the keys again from the header on disk. Its secret is the same as before, or does not authenticate.
    /// - Throws: `.locked` while the class key is forgotten; `.damaged`.
    package func restoreKeys() throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            if hasKeys { return }
            let (header, fresh, _) = try Self.readHeader(of: reader, keyRing: store.keyRing)
            guard header.fileID == fileID else { throw .damaged("header: of another file") }
            keys.refill(from: fresh)
        }
    }

    /// The class whose key wraps the file secret.
    package var protectionClass: ProtectionClass { records.protectionClass.load(ordering: .acquiring) }

    /// Wraps the file secret under another class's key with one write of the header, durable on return. Chunks, seal
    /// and times stay (FileFormat, File header). Writes nothing if the file has that class.
    /// - Throws: `EROFS`; `.damaged` if the class key does not open the wrap. Also throws if the new header cannot be
    ///   made durable. Then the file has the new class.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        let isChanged = try writing.withLock { (state) throws(StoreError) -> Bool in
            if state.header.protectionClass == newClass { return false }
            // Not `writer`: the file is not opened for writing, so it must be neither cut back nor sealed.
            let writer = if let writer = state.writer { writer } else { try reader.reopened(flags: O_RDWR) }
            let rewrapped = try rewrapped(state.header, as: newClass)
            try keepingAttributes(writer) { (_) throws(StoreError) in
                try writeHeader(&state, writer) { $0 = rewrapped }
                records.protectionClass.store(newClass, ordering: .releasing)
            }
            return true
        }
        // Not under the lock, so that programs can write.
        if isChanged { try synchronize(dataOnly: true) }
    }

    private func rewrapped(_ header: FileHeader, as newClass: ProtectionClass) throws(StoreError) -> FileHeader {
        let oldCipher = try store.keyRing.classCipher(header.protectionClass, epoch: header.epoch)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: header.epoch)
        return try StoreError.ofFormat(header.rewrapped(as: newClass, from: oldCipher, to: newCipher, keys: keys))
    }
}
