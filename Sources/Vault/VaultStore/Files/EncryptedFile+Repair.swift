internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

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
        try store.log.checkpoint(.repair)
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
        let layout = store.layout
        let rest = try EncryptedFile(descriptor, in: store)
        // Left longer here also after an unclean end, so that the first writer keeps the tail.
        if rest.hasUnsealedTail { return try open(descriptor, in: store, cutsTornTail: false) }
        guard let sealed = rest.missedLength else { return try open(descriptor, in: store) }
        let left = layout.plaintextLength(ofBackingSize: UInt64(clamping: try descriptor.status().st_size))
        if left < sealed { try rest.sealRest(left) }
        return try open(descriptor, in: store)
    }

    private func sealRest(_ length: UInt64) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state, evenIfClosed: true)
            // The file's size must be on disk before the header that authenticates it.
            try writer.synchronize(dataOnly: false)
            try writeHeader(&state, writer) {
                $0.length = length
                $0.sealCounter += 1
            }
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
