internal import CLinux
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat

/// The verified chunks of a file past some offset, whatever length its header has. For one thread.
final class FileTail {
    private let parts: FileParts
    /// Plaintext offset.
    private let start: UInt64
    private let reading, writing: Workspace
    /// Plaintext of one chunk of the copy, and its number of bytes so far.
    private let block: UnsafeMutableRawBufferPointer
    private var filled = 0
    /// The chunk of the file in which the block begins.
    private var blockChunk: UInt64?

    private var layout: ChunkLayout { parts.layout }
    private var firstChunk: UInt64 { start / UInt64(layout.chunkSize) }
    /// Offset in a chunk of the file at which a chunk of the copy begins.
    private var skipped: Int { Int(start % UInt64(layout.chunkSize)) }

    init(of parts: FileParts, from start: UInt64) throws(StoreError) {
        self.parts = parts
        self.start = start
        reading = try Workspace(layout: parts.layout)
        writing = try Workspace(layout: parts.layout)
        block = reading.reply.slice(..<parts.layout.chunkSize)
    }

    /// Copies the tail to a file in `lost+found`, durably, before it is cut off (FileFormat, Store-33). The header may
    /// be older than the data, restored by a person or by a disk, and so have a former length.
    func keep() throws(StoreError) {
        guard try exists() else { return }
        let name = LostObject.digits(of: parts.fileID) + ".tail"
        try LostAndFound(in: parts.store).makeFile(Array(name.utf8)) { (copy) throws(StoreError) in
            try self.copy(to: copy)
        }
    }

    /// True if any part of the tail verifies.
    private func exists() throws(StoreError) -> Bool {
        var chunk = firstChunk
        while let found = try next(from: chunk) {
            if layout.plaintextOffset(ofChunk: found.chunk) + UInt64(found.size) > start { return true }
            chunk = found.chunk + 1
        }
        return false
    }

    /// Writes the tail to an empty file, from its beginning on. Chunks that do not verify become zeros.
    private func copy(to copy: EncryptedFile) throws(StoreError) {
        var chunk = firstChunk
        while let found = try next(from: chunk) {
            // Chunks of the copy begin inside chunks of the file. Collect whole ones, to write each only once.
            if found.chunk > firstChunk {
                try put(0..<min(skipped, found.size), in: found.chunk - 1, at: layout.chunkSize - skipped, copy)
            }
            if found.size > skipped { try put(skipped..<found.size, in: found.chunk, at: 0, copy) }
            chunk = found.chunk + 1
        }
        try flush(filled, to: copy)
    }

    private func put(
        _ range: Range<Int>, in chunk: UInt64, at position: Int, _ copy: EncryptedFile
    ) throws(StoreError) {
        guard !range.isEmpty else { return }
        if chunk != blockChunk {
            try flush(layout.chunkSize, to: copy)
            blockChunk = chunk
            filled = 0
            block.fill(with: 0)
        }
        filled = position + range.count
        block.slice(position..<filled).copyMemory(from: UnsafeRawBufferPointer(reading.edge.slice(range)))
    }

    private func flush(_ count: Int, to copy: EncryptedFile) throws(StoreError) {
        guard let blockChunk else { return }
        let offset = layout.plaintextOffset(ofChunk: blockChunk - firstChunk)
        var done = 0
        while done < count {
            let piece = UnsafeRawBufferPointer(block.slice(done..<count))
            done += try copy.write(piece, at: offset + UInt64(done), workspace: writing)
        }
    }

    /// Reads the next chunk that verifies.
    private func next(from chunk: UInt64) throws(StoreError) -> (chunk: UInt64, size: Int)? {
        var chunk = chunk
        let end = layout.chunkCount(ofLength: parts.length)
        while chunk < end {
            let size = layout.plaintextSize(ofChunk: chunk, length: parts.length)
            if try read(chunk, size) { return (chunk, size) }
            guard let data = try nextData(after: chunk) else { return nil }
            chunk = max(chunk + 1, data)
        }
        return nil
    }

    /// Returns the first chunk after this one with data in the store. Skips holes, which may have any size.
    private func nextData(after chunk: UInt64) throws(StoreError) -> UInt64? {
        do throws(StoreError) {
            let data = try SparseMap(parts: parts).offset(layout.recordOffset(ofChunk: chunk + 1), linux_SEEK_DATA)
            return data.map { ($0 - UInt64(ChunkLayout.headerSize)) / UInt64(layout.recordSize) }
        } catch .system(.invalidArgument) {
            return chunk + 1
        }
    }

    private func read(_ chunk: UInt64, _ size: Int) throws(StoreError) -> Bool {
        try RunReader(parts: parts).decryptStored(chunk, into: reading.edge.slice(..<size), reading)
    }
}
