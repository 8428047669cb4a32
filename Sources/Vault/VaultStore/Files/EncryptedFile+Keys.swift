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
        // Not under the lock, so that programs can write.
        if try rewrap({ $0.protectionClass == newClass ? nil : newClass }) { try synchronize(dataOnly: true) }
    }

    /// Wraps the secret of a file that was made while the vault was locked under its class key, if it is not yet. Best effort: the
    /// file can be read all the same.
    package func replaceInboxWrap() {
        if store.isReadOnly || writing.withLock({ $0.header.ephemeralKey }) == nil { return }
        _ = try? rewrap { $0.ephemeralKey == nil ? nil : $0.protectionClass }
    }

    /// True if a file's header, not authenticated, says that it was made without its class's key. Needs no key.
    /// - Throws: `.system` with errno.
    package static func claimsInboxWrap(in directory: Descriptor, _ entry: [UInt8]) throws(StoreError) -> Bool {
        try start(of: try Descriptor(at: directory.fd, entry, flags: O_RDONLY | O_NONBLOCK))[6] == 1
    }

    /// Wraps the file secret under the key of a class, with one write of the header.
    /// - Parameter choose: returns the class. Nil to write nothing.
    /// - Returns: true if it was written.
    private func rewrap(_ choose: (FileHeader) -> ProtectionClass?) throws(StoreError) -> Bool {
        try writing.withLock { (state) throws(StoreError) -> Bool in
            guard let newClass = choose(state.header) else { return false }
            // Not `writer`: the file is not opened for writing, so it must be neither cut back nor sealed.
            let writer = if let writer = state.writer { writer } else { try reader.reopened(flags: O_RDWR) }
            let rewrapped = try rewrapped(state.header, as: newClass)
            try keepingAttributes(writer) { (_) throws(StoreError) in
                try writeHeader(&state, writer) { $0 = rewrapped }
                records.protectionClass.store(newClass, ordering: .releasing)
            }
            return true
        }
    }

    private func rewrapped(_ header: FileHeader, as newClass: ProtectionClass) throws(StoreError) -> FileHeader {
        let oldCipher = try store.keyRing.wrapCipher(of: header)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: header.epoch)
        return try StoreError.ofFormat(header.rewrapped(as: newClass, from: oldCipher, to: newCipher, keys: keys))
    }
}
