package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Copies a whole file into an empty one with keys of its own. Holes stay holes.
package struct FileCopy {
    let source: EncryptedFile
    let copy: EncryptedFile
    let workspace: Workspace

    package init(of source: EncryptedFile, to copy: EncryptedFile, _ workspace: Workspace) {
        (self.source, self.copy, self.workspace) = (source, copy, workspace)
    }

    /// Copies the content, and seals the copy. The caller makes the copy durable before it gets a name.
    /// - Parameter onBytes: called with the size of each piece. If it throws, the copy ends.
    /// - Throws: `.damaged` if any chunk does not verify; `.system` with errno; the error of `onBytes`.
    package func run(onBytes: (UInt64) throws(StoreError) -> Void) throws(StoreError) {
        if source.parts.isSparse.load(ordering: .acquiring) {
            try copy.writing.withLock { (writer) throws(StoreError) in
                try writer.prepare()
                try writer.markSparse()
            }
        }
        var offset: UInt64 = 0
        while let data = try source.seek(from: offset, toHole: false) {
            try skip(to: data)
            let end = try source.seek(from: data, toHole: true) ?? source.length
            try copyData(data..<end, onBytes)
            offset = end
        }
        try skip(to: source.length)
        if source.writing.withLock({ $0.header.isLinked }) { try copy.markLinked() }
        try copy.writing.withLock { (writer) throws(StoreError) in
            try writer.prepare()
            try writer.seal()
        }
    }

    private func copyData(
        _ range: Range<UInt64>, _ onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) {
        var offset = range.lowerBound
        while offset < range.upperBound {
            let size = Int(min(UInt64(workspace.reply.count), range.upperBound - offset))
            let piece = workspace.reply.slice(..<size)
            guard try source.read(at: offset, into: piece, workspace: workspace) == size else {
                throw .damaged("it ends before its length")
            }
            try copyPiece(UnsafeRawBufferPointer(piece), at: offset)
            offset += UInt64(size)
            try onBytes(UInt64(size))
        }
    }

    /// Writes a piece of the copy. Chunks with zero records stay holes, even if the store reports them as data.
    private func copyPiece(_ piece: UnsafeRawBufferPointer, at offset: UInt64) throws(StoreError) {
        let chunkSize = source.layout.chunkSize
        var start = 0
        var position = 0
        while position < piece.count {
            let end = min(position + chunkSize, piece.count)
            let chunk = (offset + UInt64(position)) / UInt64(chunkSize)
            if piece[position..<end].allSatisfy({ $0 == 0 }),
                try SparseMap(parts: source.parts).isHole(chunk, size: end - position, workspace)
            {
                try copy.writeAll(piece.slice(start..<position), at: offset + UInt64(start), workspace)
                try skip(to: offset + UInt64(end))
                start = end
            }
            position = end
        }
        try copy.writeAll(piece.slice(start...), at: offset + UInt64(start), workspace)
    }

    /// Extends the copy, which ends with a whole chunk, by a hole up to `newLength`.
    private func skip(to newLength: UInt64) throws(StoreError) {
        try copy.writing.withLock { (writer) throws(StoreError) in try writer.skip(to: newLength) }
    }
}
