internal import CLinux
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The verified chunks of a file past some offset, whatever length its header has. For one thread.
struct FileTail {
    private let parts: FileParts
    /// Plaintext offset, before the end.
    private let start: UInt64
    private let reading, writing: Workspace

    private var layout: ChunkLayout { parts.layout }
    private var firstChunk: UInt64 { layout.chunkIndex(ofPlaintextOffset: start) }

    init(of parts: FileParts, from start: UInt64) throws(StoreError) {
        self.parts = parts
        self.start = start
        reading = try Workspace(layout: parts.layout)
        writing = try Workspace(layout: parts.layout)
    }

    /// Copies the tail to a file in `lost+found`, durably, before it is cut off (FileFormat, Store-33). The header may
    /// be older than the data, restored by a person or by a disk, and so have a former length.
    func keep() throws(StoreError) {
        guard try next(from: firstChunk) != nil else { return }
        let name = Hexadecimal.encode(parts.fileID) + ".tail"
        try LostAndFound(in: parts.store).makeFile(Array(name.utf8)) { (copy) throws(StoreError) in
            try self.copy(to: copy)
        }
    }

    /// Writes the tail to an empty file, from its beginning on. Chunks that do not verify become zeros.
    private func copy(to copy: EncryptedFile) throws(StoreError) {
        var first = firstChunk
        while let (chunk, plaintext) = try next(from: first) {
            let offset = max(start, layout.plaintextOffset(ofChunk: chunk))
            let skipped = Int(offset - layout.plaintextOffset(ofChunk: chunk))
            try copy.writeAll(plaintext.slice(skipped...), at: offset - start, writing)
            first = chunk + 1
        }
        // Chunks of the copy begin inside chunks of the file, so the log has most. They must be in place for a seal.
        try parts.store.log.checkpoint(.change(copy.fileID))
    }

    /// Reads the next chunk that verifies, from this one on.
    private func next(from first: UInt64) throws(StoreError) -> (chunk: UInt64, plaintext: UnsafeRawBufferPointer)? {
        var chunk = first
        while chunk < layout.chunkCount(ofLength: parts.length) {
            let plaintext = reading.edge.slice(..<layout.plaintextSize(ofChunk: chunk, length: parts.length))
            if try RunReader(parts: parts).decryptStored(chunk, into: plaintext, reading) {
                return (chunk, UnsafeRawBufferPointer(plaintext))
            }
            guard let data = try nextData(after: chunk) else { return nil }
            chunk = max(chunk + 1, data)
        }
        return nil
    }

    /// Returns the first chunk after this one with data in the store. Skips holes, which may have any size.
    private func nextData(after chunk: UInt64) throws(StoreError) -> UInt64? {
        do throws(StoreError) {
            let map = SparseMap(parts: parts)
            return try map.offset(layout.recordOffset(ofChunk: chunk + 1), linux_SEEK_DATA).map(map.chunk)
        } catch .system(.invalidArgument) {
            return chunk + 1
        }
    }
}
