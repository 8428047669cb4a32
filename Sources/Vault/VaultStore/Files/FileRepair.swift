package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Repairs a file without losing anything that authenticates. It corrects the end of the file and the header's length. Chunks
/// that do not verify stay. Opening for writing and sealing take the same steps, so that they can deal with the state that a
/// kill leaves.
package enum FileRepair {
    /// Durable on return, and the times stay.
    /// - Parameter descriptor: of the backing file, open for reading. Nobody else has it open.
    /// - Throws: `.damaged` if the header does not authenticate; `.system`.
    package static func run(_ descriptor: Descriptor, in store: Store) throws(StoreError) {
        let before = try descriptor.status()
        let file = try openAnyLength(descriptor, in: store)
        try file.prepareForWriting(evenIfClosed: true)
        let writer = file.anyDescriptor
        let capability = BackingAttributes.capability(of: writer)
        try file.writing.withLock { (writer) throws(StoreError) in try writer.cutFragment() }
        try store.log.checkpoint(.change(file.fileID))
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try BackingAttributes.restore(writer, before, capability)
        try file.synchronize(dataOnly: false)
    }

    /// Opens a file that may be shorter than its sealed header says. Such a file is sealed at the length that is left.
    private static func openAnyLength(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        let rest = try EncryptedFile(descriptor, in: store)
        // Left longer here also after an unclean end, so that the first writer keeps the tail.
        if rest.parts.hasUnsealedTail { return try .open(descriptor, in: store, cutsTornTail: false) }
        if rest.missedLength != nil {
            try rest.writing.withLock { (writer) throws(StoreError) in try writer.sealRest() }
        }
        return try .open(descriptor, in: store)
    }
}
