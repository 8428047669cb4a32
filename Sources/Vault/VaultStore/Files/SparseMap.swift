internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// The data and the holes of a file's backing file. A hole consists of whole chunks.
struct SparseMap {
    let parts: FileParts

    private var layout: ChunkLayout { parts.layout }

    /// True if the file is sparse and the record of a chunk with `size` bytes of plaintext is all zero.
    func isHole(_ chunk: UInt64, size: Int, _ workspace: Workspace) throws(StoreError) -> Bool {
        guard parts.isSparse.load(ordering: .acquiring) else { return false }
        return try parts.readRecord(chunk, size: size, workspace).allSatisfy { $0 == 0 }
    }

    /// Makes a hole of chunks in the backing file. Its size stays.
    func punch(_ chunks: Range<UInt64>, _ writer: Descriptor) throws(StoreError) {
        let start = layout.recordOffset(ofChunk: chunks.lowerBound)
        let end = min(layout.recordOffset(ofChunk: chunks.upperBound), UInt64(clamping: try writer.status().st_size))
        guard start < end else { return }
        try retrying {
            linux_fallocate(
                writer.fd, linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE, Int64(start), Int64(end - start))
        }
    }

    /// Makes a hole of one byte past the end, which changes only the times. Throws `EOPNOTSUPP` in a store without
    /// holes.
    func punchPastEnd(_ writer: Descriptor) throws(StoreError) {
        // A checkpoint holds this lock while it writes. Otherwise it could lengthen the file after its size was read
        // here, and the hole would hit a record.
        try parts.attributes.lock.withLock { (_) throws(StoreError) in
            let end = Int64(try writer.status().st_size)
            try retrying {
                linux_fallocate(writer.fd, linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE, end, 1)
            }
        }
    }

    /// Does `EncryptedFile.seek`.
    func seek(from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64? {
        let length = parts.length
        guard plaintextOffset < length else { return nil }
        guard parts.isSparse.load(ordering: .acquiring) else { return toHole ? length : plaintextOffset }
        if parts.isLogged {
            // Only the store knows where its holes are.
            if parts.store.isReadOnly { return toHole ? length : plaintextOffset }
            try parts.store.log.checkpoint(.holes(parts.fileID))
        }
        return try seekInPlace(from: plaintextOffset, toHole: toHole, length)
    }

    /// Does `seek`, once everything is in place.
    ///
    /// Everything past the length in a sealed header is data, because a program that skips holes must read there and
    /// get `EIO`. With a hole or ENXIO it would make a longer file, as stat(2) shows it, without an error.
    /// - Parameters:
    ///   - plaintextOffset: before `length`.
    ///   - length: of the file.
    private func seekInPlace(from plaintextOffset: UInt64, toHole: Bool, _ length: UInt64) throws(StoreError) -> UInt64?
    {
        let authentic = min(length, parts.authenticLength)
        if plaintextOffset < authentic,
            let found = try seek(from: plaintextOffset, toHole: toHole, before: authentic), found < authentic
        {
            return found
        }
        if toHole { return length }
        return authentic < length ? max(plaintextOffset, authentic) : nil
    }

    /// Seeks in a file of `length` bytes, whatever its backing size is.
    private func seek(from plaintextOffset: UInt64, toHole: Bool, before length: UInt64) throws(StoreError) -> UInt64? {
        let chunkSize = UInt64(layout.chunkSize)
        var chunk = plaintextOffset / chunkSize
        let count = layout.chunkCount(ofLength: length)
        let missing = try firstMissingChunk(length)
        while chunk < count {
            // A missing record is not a hole. Reading it is an error.
            if chunk >= missing { return toHole ? length : max(plaintextOffset, chunk * chunkSize) }
            let start = layout.recordOffset(ofChunk: chunk)
            let end = min(start + UInt64(layout.recordSize), layout.backingSize(ofPlaintextLength: length))
            // The next data at or after this record. A record without data is a hole.
            let data = try offset(start, linux_SEEK_DATA) ?? .max
            if data >= end {
                if toHole { return max(plaintextOffset, chunk * chunkSize) }
                if data == .max {
                    chunk = missing
                    continue
                }
                // Data past the end of the last record may begin before the next record would.
                chunk = max(chunk + 1, (data - UInt64(ChunkLayout.headerSize)) / UInt64(layout.recordSize))
                continue
            }
            if !toHole { return max(plaintextOffset, chunk * chunkSize) }
            // All records before the next hole of the backing file are data.
            guard let hole = try offset(max(start, data), linux_SEEK_HOLE), hole >= end else {
                chunk += 1
                continue
            }
            chunk = max(chunk + 1, (hole - UInt64(ChunkLayout.headerSize)) / UInt64(layout.recordSize))
        }
        return toHole ? length : nil
    }

    /// Returns the first chunk that is not completely in the backing file, which may be too short for the length.
    private func firstMissingChunk(_ length: UInt64) throws(StoreError) -> UInt64 {
        let stored = UInt64(clamping: try parts.reader.status().st_size)
        if stored >= layout.backingSize(ofPlaintextLength: length) { return .max }
        return (max(stored, UInt64(ChunkLayout.headerSize)) - UInt64(ChunkLayout.headerSize))
            / UInt64(layout.recordSize)
    }

    /// lseek(2) of the backing file. Nil for ENXIO.
    func offset(_ from: UInt64, _ whence: Int32) throws(StoreError) -> UInt64? {
        do throws(StoreError) {
            return UInt64(try retrying { lseek(parts.reader.fd, off_t(from), whence) })
        } catch {
            if error == .system(.noSuchAddressOrDevice) { return nil }
            throw error
        }
    }
}
