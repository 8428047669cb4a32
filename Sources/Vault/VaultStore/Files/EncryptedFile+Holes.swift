internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

extension EncryptedFile {
    /// fallocate(2) with PUNCH_HOLE|KEEP_SIZE: the range reads as zeros and its whole chunks take no space.
    /// - Throws: the error of `Store.admitChange`; `.system` with errno, such as `ENOSPC`; `.damaged` for chunks that
    ///   are read first.
    package func punchHole(_ range: Range<UInt64>, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            let inside = range.clamped(to: 0..<length)
            if !inside.isEmpty { return try punch(&state, writer, inside, workspace) }
            try punchPastEnd(writer)
            records.log.raiseTime()
        }
    }

    /// fallocate(2) with ZERO_RANGE: the range reads as zeros and has its space. The file may grow.
    /// - Throws: the error of `Store.admitChange`; `.system` with errno, such as `ENOSPC`; `.damaged` for chunks that
    ///   are read first.
    package func zeroRange(_ range: Range<UInt64>, keepsSize: Bool, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            // First, because it may fail for lack of space. Punching frees the space, so reserve it again.
            try reserve(&state, writer, range, keepsSize: true, workspace)
            try punch(&state, writer, range.clamped(to: 0..<length), workspace)
            // The hole must be made before space is allocated in it.
            try putEverythingInPlace(&state)
            try reserve(&state, writer, range, keepsSize: keepsSize, workspace)
        }
    }

    /// fallocate(2) without a mode or with KEEP_SIZE: later writes to the range do not run out of space.
    /// - Throws: the error of `Store.admitChange`; `EFBIG`, and `.system` with errno, such as `ENOSPC`.
    package func allocate(_ range: Range<UInt64>, keepsSize: Bool, workspace: Workspace) throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            try reserve(&state, writer, range, keepsSize: keepsSize, workspace)
            records.log.raiseTime()
        }
    }

    private func reserve(
        _ state: inout WriteState, _ writer: Descriptor, _ range: Range<UInt64>, keepsSize: Bool,
        _ workspace: Workspace
    ) throws(StoreError) {
        guard range.upperBound <= Self.largestLength else { throw .system(.fileTooLarge) }
        let start = layout.recordOffset(ofChunk: layout.chunkIndex(ofPlaintextOffset: range.lowerBound))
        let end = layout.backingSize(ofPlaintextLength: range.upperBound)
        try retrying {
            linux_fallocate(writer.fd, linux_FALLOC_FL_KEEP_SIZE, Int64(start), Int64(max(end, start + 1) - start))
        }
        state.space.isAhead = state.space.isAhead || range.upperBound > length
        if keepsSize || range.upperBound <= length { return }
        try growing(&state, writer, workspace) { (state) throws(StoreError) in
            try extend(&state, writer, to: range.upperBound, workspace)
        }
    }

    /// Writes zeros to the parts of chunks at both ends and makes holes of the chunks between. The caller holds the write
    /// lock.
    private func punch(
        _ state: inout WriteState, _ writer: Descriptor, _ range: Range<UInt64>, _ workspace: Workspace
    ) throws(StoreError) {
        guard !range.isEmpty else { return }
        let chunkSize = UInt64(layout.chunkSize)
        let firstWhole = (range.lowerBound + chunkSize - 1) / chunkSize
        // Not a shorter last record: one that is zero was torn.
        let endWhole = range.upperBound / chunkSize
        guard firstWhole < endWhole else { return try writeZeros(&state, writer, range, workspace) }
        if range.lowerBound < firstWhole * chunkSize {
            try writeZeros(&state, writer, range.lowerBound..<(firstWhole * chunkSize), workspace)
        }
        if endWhole * chunkSize < range.upperBound {
            try writeZeros(&state, writer, (endWhole * chunkSize)..<range.upperBound, workspace)
        }
        try punchPastEnd(writer)
        try markSparse(&state, writer)
        if records.log.hasMostHoles { try putEverythingInPlace(&state) }
        // The hole may remove the record that the file ended with.
        let isEnd = isLogged && endWhole >= layout.chunkCount(ofLength: length)
        try changes.during { () throws(StoreError) in
            let exactLength = isEnd || records.log.hasLength ? length : nil
            try append(
                .hole, first: firstWhole, end: endWhole, exactLength: exactLength, &state, writer, workspace)
            store.cache.removeAll(file: token, from: firstWhole)
        }
    }

    /// Makes a hole of a byte past the end, where it changes nothing but the times. Throws `EOPNOTSUPP` if the store cannot make
    /// holes. The caller holds the write lock.
    func punchPastEnd(_ writer: Descriptor) throws(StoreError) {
        // A checkpoint holds this lock while it writes. Else it could make the file longer after the look at its size, and the
        // hole would be in a record.
        try attributes.lock.withLock { (_) throws(StoreError) in
            let end = Int64(try writer.status().st_size)
            try retrying {
                linux_fallocate(writer.fd, linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE, end, 1)
            }
        }
    }

    /// Finds data or a hole, like lseek(2) with SEEK_DATA or SEEK_HOLE. Returns nil for ENXIO. Holes are reported in
    /// whole chunks.
    ///
    /// Everything past the length in a sealed header is data. A program that skips holes must read there and get
    /// `EIO`. With a hole or ENXIO it would make a longer file without an error, because stat(2) shows the longer
    /// length.
    /// - Throws: `ESTALE`; `.system` with errno, also of a checkpoint.
    package func seek(from plaintextOffset: UInt64, toHole: Bool) throws(StoreError) -> UInt64? {
        try followIfNeeded()
        let length = self.length
        guard plaintextOffset < length else { return nil }
        guard records.isSparse.load(ordering: .acquiring) else { return toHole ? length : plaintextOffset }
        if isLogged {
            // Only the store knows where its holes are.
            if store.isReadOnly { return toHole ? length : plaintextOffset }
            try store.log.checkpoint(.holes)
        }
        let authentic = min(length, authenticLength)
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
            // No record before the next hole of the backing file is a hole.
            guard let hole = try offset(max(start, data), linux_SEEK_HOLE), hole >= end else {
                chunk += 1
                continue
            }
            chunk = max(chunk + 1, (hole - UInt64(ChunkLayout.headerSize)) / UInt64(layout.recordSize))
        }
        return toHole ? length : nil
    }

    /// The first chunk that is not completely in the backing file, which may be too short for the length.
    private func firstMissingChunk(_ length: UInt64) throws(StoreError) -> UInt64 {
        let stored = UInt64(clamping: try reader.status().st_size)
        if stored >= layout.backingSize(ofPlaintextLength: length) { return .max }
        return (max(stored, UInt64(ChunkLayout.headerSize)) - UInt64(ChunkLayout.headerSize))
            / UInt64(layout.recordSize)
    }

    /// lseek(2) of the backing file. Nil for ENXIO.
    func offset(_ from: UInt64, _ whence: Int32) throws(StoreError) -> UInt64? {
        let found = lseek(reader.fd, off_t(from), whence)
        if found >= 0 { return UInt64(found) }
        let error = currentErrno()
        if error == .noSuchAddressOrDevice { return nil }
        throw .system(error)
    }
}
