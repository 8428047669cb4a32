internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
package import VaultFormat

extension EncryptedFile {
    /// The class whose key wraps the file secret.
    package var protectionClass: ProtectionClass { currentClass.load(ordering: .acquiring) }

    /// Wraps the file secret under another class's key: one write of the header, durable on return. Chunks, seal and
    /// times stay (FileFormat, File header). Nothing is written where the file is of that class.
    /// - Throws: `EROFS`; `.damaged` where the class key does not open the wrap. Where the new header cannot be made
    ///   durable the file is of the new class, and this throws.
    package func changeClass(to newClass: ProtectionClass) throws(StoreError) {
        try store.admitChange()
        let isChanged = try writing.withLock { (state) throws(StoreError) -> Bool in
            if state.header.protectionClass == newClass { return false }
            // Not `writer`: the file has not been opened for writing, so that it is neither cut back nor sealed.
            let writer = if let writer = state.writer { writer } else { try reader.reopened(flags: O_RDWR) }
            let before = try writer.status()
            let capability = Self.capability(of: writer)
            try unseen(writer, before) { () throws(StoreError) in
                try rewrap(&state, writer, newClass)
                try Self.restore(writer, before, capability)
            }
            return true
        }
        // Not under the lock: programs may go on writing.
        if isChanged { try synchronize(dataOnly: true) }
    }

    /// Writes the header with the new wrap; it stays as it was where that fails.
    private func rewrap(
        _ state: inout WriteState, _ writer: Descriptor, _ newClass: ProtectionClass
    ) throws(StoreError) {
        let oldHeader = state.header
        let oldCipher = try store.keyRing.classCipher(oldHeader.protectionClass, epoch: oldHeader.epoch)
        let newCipher = try store.keyRing.classCipher(newClass, epoch: oldHeader.epoch)
        do {
            state.header = try oldHeader.rewrapped(as: newClass, from: oldCipher, to: newCipher, keys: keys)
        } catch { throw StoreError(error) }
        do throws(StoreError) {
            try writeHeader(&state, writer)
        } catch {
            state.header = oldHeader
            throw error
        }
        currentClass.store(newClass, ordering: .releasing)
    }
}
