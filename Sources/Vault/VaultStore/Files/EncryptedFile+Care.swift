internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

extension EncryptedFile {
    /// Copies the whole content into an empty file with keys of its own. Holes stay holes. The copy is sealed. The caller
    /// makes it durable before it gets a name.
    /// - Parameter onBytes: called with the size of each piece. If it throws, the copy ends.
    /// - Throws: `.damaged` if any chunk does not verify.
    package func copyContents(
        to copy: EncryptedFile, _ workspace: Workspace, onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) {
        if records.isSparse.load(ordering: .acquiring) {
            try copy.writing.withLock { (state) throws(StoreError) in
                let writer = try copy.writer(&state)
                try copy.markSparse(&state, writer)
            }
        }
        var offset: UInt64 = 0
        while let data = try seek(from: offset, toHole: false) {
            try copy.skip(to: data)
            let end = try seek(from: data, toHole: true) ?? length
            try copyData(data..<end, to: copy, workspace, onBytes)
            offset = end
        }
        try copy.skip(to: length)
        if writing.withLock({ $0.header.isLinked }) { try copy.markLinked() }
        try copy.writing.withLock { (state) throws(StoreError) in
            let writer = try copy.writer(&state)
            try copy.writeSeal(&state, writer)
        }
    }

    private func copyData(
        _ range: Range<UInt64>, to copy: EncryptedFile, _ workspace: Workspace,
        _ onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) {
        var offset = range.lowerBound
        while offset < range.upperBound {
            let size = Int(min(UInt64(workspace.reply.count), range.upperBound - offset))
            let piece = workspace.reply.slice(..<size)
            guard try read(at: offset, into: piece, workspace: workspace) == size else {
                throw .damaged("it ends before its length")
            }
            try copyPiece(UnsafeRawBufferPointer(piece), at: offset, to: copy, workspace)
            offset += UInt64(size)
            try onBytes(UInt64(size))
        }
    }

    /// Chunks whose records are zeros stay holes, even if the store does not report them as holes.
    private func copyPiece(
        _ piece: UnsafeRawBufferPointer, at offset: UInt64, to copy: EncryptedFile, _ workspace: Workspace
    ) throws(StoreError) {
        let chunkSize = layout.chunkSize
        var start = 0
        var position = 0
        while position < piece.count {
            let end = min(position + chunkSize, piece.count)
            let chunk = (offset + UInt64(position)) / UInt64(chunkSize)
            if piece[position..<end].allSatisfy({ $0 == 0 }),
                try isHole(chunk, size: end - position, workspace)
            {
                try copy.writeAtEnd(piece.slice(start..<position), workspace)
                try copy.skip(to: offset + UInt64(end))
                start = end
            }
            position = end
        }
        try copy.writeAtEnd(piece.slice(start...), workspace)
    }

    /// Compares the content with a plain file of the same length.
    func hasSameBytes(as plain: Descriptor, _ workspace: Workspace) throws(StoreError) -> Bool {
        var offset: UInt64 = 0
        while offset < length {
            let count = try read(at: offset, into: workspace.reply, workspace: workspace)
            let piece = try plain.read(at: offset, count: count)
            guard count > 0, workspace.reply.slice(..<count).elementsEqual(piece) else { return false }
            offset += UInt64(count)
        }
        return true
    }

    /// Writes at the end of a file that ends with a whole chunk.
    func writeAtEnd(_ bytes: UnsafeRawBufferPointer, _ workspace: Workspace) throws(StoreError) {
        var done = 0
        while done < bytes.count { done += try write(bytes.slice(done...), at: length, workspace: workspace) }
    }

    /// Extends a file that ends with a whole chunk by a hole up to `newLength`.
    private func skip(to newLength: UInt64) throws(StoreError) {
        guard newLength > length else { return }
        try writing.withLock { (state) throws(StoreError) in
            try writer(&state).truncate(to: layout.backingSize(ofPlaintextLength: newLength))
            syncs.countWrite()
            setLength(&state, newLength)
        }
    }
}

extension EncryptedFile {
    /// Repairs a file without losing anything that authenticates, durably and keeping the times. It corrects the end of the file and the header's length. Chunks that do not verify stay.
    ///
    /// Opening for writing and sealing take the same steps, so that they can deal with the state that a kill leaves.
    /// - Parameter descriptor: of the backing file, open for reading. Nobody else has it open.
    /// - Throws: `.damaged` if the header does not authenticate; `.system`.
    package static func repair(_ descriptor: Descriptor, in store: Store) throws(StoreError) {
        let before = try descriptor.status()
        let file = try openAnyLength(descriptor, in: store)
        try file.prepareForWriting(evenIfClosed: true)
        let writer = file.anyDescriptor
        let capability = BackingAttributes.capability(of: writer)
        try file.cutRest(writer)
        try store.log.checkpoint(.change(file))
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try BackingAttributes.restore(writer, before, capability)
        try file.synchronize(dataOnly: false)
    }

    /// Copies data that verifies past a sealed length to a file in `lost+found`, durably, before it is cut off (FileFormat,
    /// Store-33). A header that is older than the data, restored by a person or by a disk, has a former length. The caller
    /// holds the write lock.
    func keepTail(past sealedLength: UInt64) throws(StoreError) {
        let tail = try FileTail(of: self, from: sealedLength)
        guard try tail.exists() else { return }
        let name = LostObject.digits(of: fileID) + ".tail"
        try LostAndFound(in: store).makeFile(Array(name.utf8)) { (copy) throws(StoreError) in try tail.copy(to: copy) }
    }

    /// Opens a file that may be shorter than its sealed header says. Such a file is sealed at the length that is left.
    private static func openAnyLength(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        let rest = try EncryptedFile(descriptor, in: store)
        // Left longer here also after an unclean end, so that the first writer keeps the tail.
        if rest.hasUnsealedTail { return try open(descriptor, in: store, cutsTornTail: false) }
        if rest.missedLength != nil { try rest.sealRest() }
        return try open(descriptor, in: store)
    }

    private func sealRest() throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state, evenIfClosed: true)
            // The file's size must be on disk before the header that authenticates it.
            try writer.synchronize(dataOnly: false)
            try writeSeal(&state, writer)
        }
    }

    /// Cuts off bytes after the last record that are too few for another.
    private func cutRest(_ writer: Descriptor) throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            let end = layout.backingSize(ofPlaintextLength: length)
            if UInt64(clamping: try writer.status().st_size) > end { try writer.truncate(to: end) }
        }
    }

    /// Writes the first header of a file that has none, durably. Owner, mode and times stay. The header is sealed, at
    /// length 0. It takes one write, and a later open finds the file closed and empty.
    static func makeHeader(
        of pin: Descriptor, class protectionClass: ProtectionClass, in store: Store
    ) throws(StoreError) {
        try store.admitChange()
        let before = try pin.status()
        var (header, keys) = try store.keyRing.makeHeader(protectionClass)
        header.isSealed = true
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        let writer = try pin.reopenedForWriting()
        let capability = BackingAttributes.capability(of: writer)
        try writer.truncate(to: 0)
        try writer.write(bytes, at: 0)
        try BackingAttributes.restore(writer, before, capability)
        try writer.synchronize(dataOnly: false)
    }
}
