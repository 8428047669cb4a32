internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Copies of whole files, and comparisons with plain ones.
extension EncryptedFile {
    /// Copies the whole content into an empty file with keys of its own, and seals the copy. Holes stay holes. The
    /// caller makes the copy durable before it gets a name.
    /// - Parameter onBytes: called with the size of each piece. If it throws, the copy ends.
    /// - Throws: `.damaged` if any chunk does not verify.
    package func copyContents(
        to copy: EncryptedFile, _ workspace: Workspace, onBytes: (UInt64) throws(StoreError) -> Void
    ) throws(StoreError) {
        if parts.records.isSparse.load(ordering: .acquiring) {
            try copy.writing.withLock { (writer) throws(StoreError) in
                try writer.prepare()
                try writer.markSparse()
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
        try copy.writing.withLock { (writer) throws(StoreError) in
            try writer.prepare()
            try writer.seal()
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

    /// Writes a piece of the copy. Chunks with zero records stay holes, even if the store reports them as data.
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
                try SparseMap(parts: parts).isHole(chunk, size: end - position, workspace)
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
        try writing.withLock { (writer) throws(StoreError) in try writer.skip(to: newLength) }
    }
}
