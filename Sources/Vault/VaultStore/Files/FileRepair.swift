package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Repairs a file and keeps everything that authenticates. It corrects the end of the file and the header's length.
/// Chunks that do not verify stay. The steps are those of opening for writing and of sealing, which can handle the
/// state left by a kill.
package enum FileRepair {
    /// Repairs the file durably, and keeps its times.
    /// - Parameter descriptor: of the backing file, open for reading. Only the caller has the file open.
    /// - Throws: `.damaged` if the header does not authenticate; `.system`.
    package static func run(_ descriptor: Descriptor, in store: Store) throws(StoreError) {
        let before = try descriptor.status()
        let file = try FileOpening(descriptor, in: store).openAnyLength()
        try file.prepareForWriting(evenIfClosed: true)
        let writer = file.anyDescriptor
        let capability = BackingAttributes.capability(of: writer)
        try file.writing.withLock { (writer) throws(StoreError) in try writer.cutFragment() }
        try store.log.checkpoint(.change(file.fileID))
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try BackingAttributes.restore(writer, before, capability)
        try file.synchronize(dataOnly: false)
    }
}
