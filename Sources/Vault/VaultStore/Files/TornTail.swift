internal import LinuxSystem
internal import VaultFormat

/// New records past the durable length of an unsealed file, partly or completely missing after an unclean end.
struct TornTail {
    let parts: FileParts

    /// Returns the first chunk past the header's durable length that does not verify. Nil if all verify. Skips the
    /// chunk in which the length ends, because a fault there is damage.
    func firstChunk(_ header: FileHeader) throws(StoreError) -> UInt64? {
        let layout = parts.layout
        let length = parts.length
        let count = layout.chunkCount(ofLength: length)
        let floor = layout.chunkCount(ofLength: header.length)
        guard floor < count else { return nil }
        let workspace = try Workspace(layout: layout)
        var chunk = floor
        while chunk < count {
            let end = min(chunk + UInt64(workspace.batchChunks), count)
            let lastSize = layout.plaintextSize(ofChunk: end - 1, length: length)
            let size = Int(end - 1 - chunk) * layout.recordSize + lastSize + ChunkLayout.recordOverhead
            let records = workspace.records.slice(..<size)
            try parts.readRecords(chunk, into: records)
            var torn: UInt64?
            let plaintext = workspace.assembly.slice(..<(size - Int(end - chunk) * ChunkLayout.recordOverhead))
            _ = try workspace.scan(
                UnsafeRawBufferPointer(records), first: chunk, layout, parts.keys.chunk, into: plaintext
            ) { (chunk, record, _) in
                let isHole = header.isSparse && record.count == layout.recordSize && record.allSatisfy { $0 == 0 }
                if !isHole { torn = chunk }
                return isHole
            }
            if let torn { return torn }
            chunk = end
        }
        return nil
    }
}
