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
        try writer.allocate(start..<end, flags: linux_FALLOC_FL_PUNCH_HOLE)
    }

    /// Makes a hole of one byte past the end, which changes only the times. Throws `EOPNOTSUPP` in a store without
    /// holes.
    func punchPastEnd(_ writer: Descriptor) throws(StoreError) {
        // A checkpoint holds this lock while it writes. Otherwise it could lengthen the file after its size was read
        // here, and the hole would hit a record.
        try parts.attributes.lock.withLock { (_) throws(StoreError) in
            let end = UInt64(clamping: try writer.status().st_size)
            try writer.allocate(end..<(end + 1), flags: linux_FALLOC_FL_PUNCH_HOLE)
        }
    }

    /// Does `EncryptedFile.seek`.
    ///
    /// Everything past the length in a sealed header is data, because a program that skips holes must read there and
    /// get `EIO`. With a hole or ENXIO it would make a longer file, as stat(2) shows it, without an error.
    func seek(from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64? {
        let length = parts.length
        guard plaintextOffset < length else { return nil }
        guard parts.isSparse.load(ordering: .acquiring) else { return toHole ? length : plaintextOffset }
        if parts.isLogged {
            // Only the store knows where its holes are.
            if parts.store.isReadOnly { return toHole ? length : plaintextOffset }
            try parts.store.log.checkpoint(.holes(parts.fileID))
        }
        let authentic = min(length, parts.authenticLength)
        if plaintextOffset < authentic,
            let found = try seek(from: plaintextOffset, toHole: toHole, before: authentic), found < authentic
        {
            return found
        }
        if toHole { return length }
        return authentic < length ? max(plaintextOffset, authentic) : nil
    }

    /// Seeks in a file of `length` bytes, whatever its backing size is. A record without data is a hole, but a missing
    /// one is not: reading it is an error.
    private func seek(from plaintextOffset: UInt64, toHole: Bool, before length: UInt64) throws(StoreError) -> UInt64? {
        let end = layout.backingSize(ofPlaintextLength: length)
        let stored = UInt64(clamping: try parts.reader.status().st_size)
        let missing = stored < end ? self.chunk(at: stored) : .max
        var chunk = layout.chunkIndex(ofPlaintextOffset: plaintextOffset)
        while chunk < layout.chunkCount(ofLength: length) {
            let start = layout.recordOffset(ofChunk: chunk)
            var nextData = chunk
            if chunk < missing {
                // Data past the end may be in the place of the last record's rest.
                let data = try offset(start, linux_SEEK_DATA) ?? .max
                nextData = data < end ? min(missing, self.chunk(at: data)) : missing
            }
            if (nextData > chunk) == toHole { return max(plaintextOffset, layout.plaintextOffset(ofChunk: chunk)) }
            chunk = toHole ? max(chunk + 1, self.chunk(at: try offset(start, linux_SEEK_HOLE) ?? .max)) : nextData
        }
        return toHole ? length : nil
    }

    /// The chunk whose record has this offset of the backing file. The first one for an offset in the header, which a
    /// store may answer.
    func chunk(at backingOffset: UInt64) -> UInt64 {
        let header = UInt64(ChunkLayout.headerSize)
        return (max(backingOffset, header) - header) / UInt64(layout.recordSize)
    }

    /// lseek(2) of the backing file. Nil for ENXIO.
    func offset(_ from: UInt64, _ whence: Int32) throws(StoreError) -> UInt64? {
        do throws(StoreError) {
            return UInt64(try retrying { lseek(parts.reader.fd, off_t(from), whence) })
        } catch .system(.noSuchAddressOrDevice) { return nil }
    }
}

extension Descriptor {
    /// fallocate(2) with KEEP_SIZE and further flags.
    func allocate(_ range: Range<UInt64>, flags: Int32 = 0) throws(StoreError) {
        try retrying {
            linux_fallocate(fd, flags | linux_FALLOC_FL_KEEP_SIZE, Int64(range.lowerBound), Int64(range.count))
        }
    }
}
