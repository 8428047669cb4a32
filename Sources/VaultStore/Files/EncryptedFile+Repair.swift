internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Puts right what can be without losing anything that authenticates, durably and keeping the times: records that
    /// are in the journal, the end of the file, and the header's length. Chunks that do not verify stay as they are.
    ///
    /// Each step is one that opening for writing or sealing does too, so that a kill leaves a state they know.
    /// - Parameter descriptor: of the backing file, open for reading; nobody else has it open.
    /// - Throws: `.damaged` for a header that does not authenticate; `.system`.
    static func repair(_ descriptor: Descriptor, in store: Store) throws(StoreError) {
        let before = try descriptor.status()
        let file = try openAnyLength(descriptor, in: store)
        try file.prepareForWriting(evenIfClosed: true)
        let writer = file.anyDescriptor
        let capability = Self.capability(of: writer)
        _ = try file.cutTornAppend()
        try file.cutRest(writer)
        _ = try file.seal(ifStill: file.lengthMark, isDurable: false)
        try Self.restore(writer, before, capability)
        try file.synchronize(dataOnly: false)
    }

    /// Copies what verifies behind a sealed length to a file of `lost+found`: a header that is older than the data, put
    /// back by somebody or by a disk, is sealed at a length that was. Before anything that opens the file may cut it.
    static func keepTail(
        of descriptor: Descriptor, in store: Store, _ lostAndFound: () throws(StoreError) -> LostAndFound
    ) throws(StoreError) {
        let (header, keys, backingSize) = try readHeader(of: descriptor, keyRing: store.keyRing)
        let length = store.layout.plaintextLength(ofBackingSize: backingSize)
        guard header.isSealed && length > header.length else { return }
        let file = EncryptedFile(
            store: store, reader: descriptor, writer: nil, header: header, keys: keys, length: length)
        let tail = try FileTail(of: file, from: header.length)
        guard try tail.isThere() else { return }
        let digits = String(header.fileID, radix: 16)
        let name = String(repeating: "0", count: 16 - digits.count) + digits + ".tail"
        try lostAndFound().makeFile(Array(name.utf8)) { (copy) throws(StoreError) in try tail.copy(to: copy) }
    }

    /// Opens a file that may be shorter than its sealed header says: then the header is made to vouch for what is left.
    private static func openAnyLength(_ descriptor: Descriptor, in store: Store) throws(StoreError) -> EncryptedFile {
        let (header, keys, backingSize) = try readHeader(of: descriptor, keyRing: store.keyRing)
        let layout = store.layout
        let length = layout.plaintextLength(ofBackingSize: backingSize)
        guard header.isSealed && length < header.length else { return try open(descriptor, in: store) }
        let rest = EncryptedFile(
            store: store, reader: descriptor, writer: nil, header: header, keys: keys, length: length)
        // Where the journal has the record that the cut went through, that is not lost. A later one would leave a gap before
        // it, and in a sparse file a gap reads as zeros.
        try rest.recoverFromJournal(through: layout.chunkIndex(ofPlaintextOffset: length))
        let left = layout.plaintextLength(ofBackingSize: UInt64(clamping: try descriptor.status().st_size))
        if left < header.length { try rest.sealRest(left) }
        return try open(descriptor, in: store)
    }

    private func sealRest(_ length: UInt64) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state, evenIfClosed: true)
            // The size it vouches for is on disk before the header is.
            try writer.synchronize(dataOnly: false)
            state.header.length = length
            try writeHeader(&state, writer)
        }
    }

    /// Cuts off what lies behind the last record and has no room for plaintext.
    private func cutRest(_ writer: Descriptor) throws(StoreError) {
        try writing.withLock { (_) throws(StoreError) in
            let end = layout.backingSize(ofPlaintextLength: length)
            if UInt64(clamping: try writer.status().st_size) > end { try writer.truncate(to: end) }
        }
    }
}
