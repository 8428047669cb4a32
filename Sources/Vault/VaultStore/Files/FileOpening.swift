internal import Glibc
package import LinuxSystem
internal import Synchronization
package import VaultFormat

/// Opens a backing file as an encrypted one. The caller closes nothing: the file owns the descriptor.
package struct FileOpening {
    let descriptor: Descriptor
    let store: Store

    /// - Parameter descriptor: of a regular file.
    package init(_ descriptor: Descriptor, in store: Store) { (self.descriptor, self.store) = (descriptor, store) }

    /// Authenticates the header and checks the sealed length. The descriptor is open for reading.
    /// - Throws: `.damaged` if the header does not authenticate, or if the file is shorter than 128 bytes or than
    ///   sealed.
    package func open() throws(StoreError) -> EncryptedFile {
        try openProven { (mustCheck) throws(StoreError) in try open(cutsTornTail: mustCheck) }
    }

    func open(cutsTornTail: Bool) throws(StoreError) -> EncryptedFile {
        try FollowedFile.retryingDamage(in: store, reader: descriptor) { () throws(StoreError) in
            let file = try EncryptedFile(descriptor, in: store)
            if let known = store.log.file(file.fileID) as? EncryptedFile, let status = try? descriptor.status(),
                (try? known.reader.status()).map(FileIdentity.init) == FileIdentity(status)
            {
                return known
            }
            adoptLoggedChanges(file)
            if let sealed = Self.missedLength(of: file) {
                guard store.readsCutFiles else {
                    throw .damaged(FileParts.wrongLength(file.length, expected: sealed))
                }
                file.parts.length = sealed
            }
            if cutsTornTail { try file.writing.withLock { (writer) throws(StoreError) in try writer.cutTornTail() } }
            return file
        }
    }

    /// Repairs the end of the file and the header's length, durably. Keeps its times and everything that authenticates;
    /// chunks that do not verify stay. The steps are those of opening for writing and of sealing, which can handle the
    /// state left by a kill. Only the caller has the file open.
    /// - Throws: `.damaged` if the header does not authenticate; `.system`.
    package func repair() throws(StoreError) {
        let before = try descriptor.status()
        let file = try openAnyLength()
        try file.prepareForWriting(evenIfClosed: true)
        let writer = file.anyDescriptor
        let capability = BackingAttributes.capability(of: writer)
        try file.writing.withLock { (writer) throws(StoreError) in try writer.cutFragment() }
        try store.log.checkpoint(.change(file.fileID))
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try BackingAttributes.restore(writer, before, capability)
        try file.synchronize(dataOnly: false)
    }

    /// Opens a file of any length. A file shorter than its sealed header says is sealed at its remaining length.
    private func openAnyLength() throws(StoreError) -> EncryptedFile {
        let rest = try EncryptedFile(descriptor, in: store)
        // Leave the file longer here, also after an unclean end, because the first writer keeps the tail.
        if rest.parts.hasUnsealedTail { return try open(cutsTornTail: false) }
        if Self.missedLength(of: rest) != nil {
            try rest.writing.withLock { (writer) throws(StoreError) in try writer.sealRest() }
        }
        return try open()
    }

    /// The length in a sealed header, if the file is shorter. Nil otherwise.
    private static func missedLength(of file: EncryptedFile) -> UInt64? {
        let header = file.writing.withLock { $0.header }
        return header.isSealed && file.length < header.length ? header.length : nil
    }

    /// Takes over the changes found in the log by a read-only store.
    private func adoptLoggedChanges(_ file: EncryptedFile) {
        guard let found = store.foundChanges?.current, let backingSize = try? descriptor.status().st_size else {
            return
        }
        file.writing.withLock { writer in
            var header = writer.header
            writer.adopt(found, UInt64(clamping: backingSize), &header)
            writer.follow(header)
        }
    }

    /// Truncates a file of any length to nothing. Replaces a header under 128 bytes by a new one. The descriptor is
    /// open for reading and writing.
    /// - Throws: `.locked` without the keys; `.damaged` if a full header does not authenticate; `.system` with errno.
    package func openTruncated(class parentClass: ProtectionClass) throws(StoreError) -> EncryptedFile {
        try openProven { (_) throws(StoreError) in
            guard try descriptor.status().st_size >= off_t(ChunkLayout.headerSize) else {
                return try makeFile(parentClass)
            }
            let file = try EncryptedFile(descriptor, writer: descriptor, in: store)
            try file.setLength(0, workspace: try Workspace(layout: store.layout))
            return file
        }
    }

    /// Writes the header of a new, empty file. The descriptor is open for reading and writing.
    /// - Throws: `.locked` without the keys; `.system` with errno.
    package func create(class protectionClass: ProtectionClass) throws(StoreError) -> EncryptedFile {
        try openProven { (_) throws(StoreError) in try makeFile(protectionClass) }
    }

    /// Runs `body`, which opens the file. With true, it must cut off a torn tail or write the content anew, because
    /// later opens do not check the tail again.
    private func openProven(_ body: (Bool) throws(StoreError) -> EncryptedFile) throws(StoreError) -> EncryptedFile {
        guard let completion = store.completion, completion.isActive else { return try body(store.followsUncleanEnd) }
        return try completion.openProven(descriptor, body)
    }

    private func makeFile(_ protectionClass: ProtectionClass) throws(StoreError) -> EncryptedFile {
        let (header, keys) = try store.keyRing.makeHeader(protectionClass)
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        try descriptor.write(bytes, at: 0)
        let file = EncryptedFile(
            store: store, reader: descriptor, writer: descriptor, header: header, keys: keys, length: 0)
        file.parts.syncs.writtenHeader.withLock { $0 = bytes }
        return file
    }
}
