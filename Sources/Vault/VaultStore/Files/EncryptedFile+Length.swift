internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

extension EncryptedFile {
    /// A gap of at least this many bytes past the end becomes a hole. A smaller one is written as encrypted zeros.
    private static let smallestHole: UInt64 = 1 << 20
    /// Leaves room for the records' overhead in a 64-bit file size.
    static let largestLength = UInt64(Int64.max) / 2
    private static let zeros = [UInt8](repeating: 0, count: 128 << 10)

    /// ftruncate(2): sets the plaintext length.
    /// - Throws: the error of `Store.admitChange`; `EFBIG`, and `.system` with errno, such as `ENOSPC`; `.damaged`
    ///   for chunks that are read first.
    package func setLength(_ newLength: UInt64, workspace: Workspace) throws(StoreError) {
        guard newLength <= Self.largestLength else { throw .system(.fileTooLarge) }
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            if newLength > length {
                try growing(&state, writer, workspace) { (state) throws(StoreError) in
                    try extend(&state, writer, to: newLength, workspace)
                }
            } else if newLength < length || newLength == 0 && isLogged {
                try shrink(&state, writer, to: newLength, workspace)
            } else if isLogged {
                // POSIX: the times change even then. ctime is the backing file's.
                try? punchPastEnd(writer)
                records.log.raiseTime()
            } else {
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: length))
            }
        }
    }

    /// Truncates the file to nothing, whatever its length and chunks are.
    func removeContent() throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let writer = try writer(&state)
            try shrink(&state, writer, to: 0, try Workspace(layout: layout))
        }
    }

    /// Runs `body`, which extends the file. If it fails, the file has its former length again: the log keeps space for that.
    /// The caller holds the write lock.
    func growing<Result>(
        _ state: inout WriteState, _ writer: Descriptor, _ workspace: Workspace,
        _ body: (inout WriteState) throws(StoreError) -> Result
    ) throws(StoreError) -> Result {
        let oldLength = length
        return try store.log.keepingUndoSpace(of: fileID) { () throws(StoreError) in
            do throws(StoreError) { return try body(&state) } catch {
                if length > oldLength { try? shrink(&state, writer, to: oldLength, undoes: true, workspace) }
                throw error
            }
        }
    }

    /// Extends the file with zeros. Called by the body of `growing`.
    func extend(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        let oldLength = length
        let chunkSize = UInt64(layout.chunkSize)
        let chunkEnd = (oldLength + chunkSize - 1) / chunkSize * chunkSize
        // A partial last record is written as encrypted zeros: one that is zero was torn.
        let holeEnd = newLength / chunkSize * chunkSize
        guard newLength - oldLength >= Self.smallestHole, holeEnd > chunkEnd else {
            return try writeZeros(&state, writer, oldLength..<newLength, workspace)
        }
        try markSparse(&state, writer)
        try unseal(&state, writer)
        // The last record must become a whole one, with its zeros encrypted, before records can follow it.
        try writeZeros(&state, writer, oldLength..<chunkEnd, workspace)
        if records.log.hasMostHoles { try putEverythingInPlace(&state) }
        if !records.log.hasLength { try beginGrowth(&state) }
        try changes.during { () throws(StoreError) in
            if records.log.hasLength {
                try append(
                    .hole, first: layout.chunkCount(ofLength: length), end: layout.chunkCount(ofLength: holeEnd),
                    exactLength: holeEnd, &state, writer, workspace)
            } else {
                // A fragment after the last record must not become part of the hole.
                let end = layout.backingSize(ofPlaintextLength: length)
                if UInt64(clamping: try writer.status().st_size) > end { try writer.truncate(to: end) }
                try writer.truncate(to: layout.backingSize(ofPlaintextLength: holeEnd))
                syncs.countWrite()
                records.log.raiseTime()
            }
            setLength(&state, holeEnd)
        }
        try writeZeros(&state, writer, holeEnd..<newLength, workspace)
    }

    /// Writes encrypted zeros over a range that begins at or before the end. The caller holds the write lock.
    private func writeZeros(
        _ state: inout WriteState, _ writer: Descriptor, _ range: Range<UInt64>, _ workspace: Workspace
    ) throws(StoreError) {
        var position = range.lowerBound
        while position < range.upperBound {
            let count = Int(min(UInt64(Self.zeros.count), range.upperBound - position))
            position += UInt64(
                try Self.zeros.withBytes { (zeros) throws(StoreError) -> Int in
                    try writeChunks(&state, writer, zeros.slice(..<count), at: position, workspace)
                })
        }
    }

    /// Cuts the file to a shorter length, in the log: until the next checkpoint the backing file keeps its size. A power cut
    /// must not leave a shortened file without the entry that replaces its last record.
    /// - Parameter undoes: takes back an extension that failed.
    func shrink(
        _ state: inout WriteState, _ writer: Descriptor, to newLength: UInt64, undoes: Bool = false,
        _ workspace: Workspace
    ) throws(StoreError) {
        let last = layout.chunkIndex(ofPlaintextOffset: newLength)
        let rest = try readRest(of: newLength, workspace)
        try unseal(&state, writer, floor: newLength)
        try changes.during { () throws(StoreError) in
            try records.cuts.during { () throws(StoreError) in
                if let rest {
                    let encrypted = try records.encrypt(rest, first: last, chunks: 1, workspace)
                    try append(
                        .records, first: last, bodySize: encrypted.count, exactLength: newLength, undoes: undoes,
                        &state,
                        writer, workspace)
                } else {
                    try append(.length, exactLength: newLength, undoes: undoes, &state, writer, workspace)
                }
                applyCut(&state, to: newLength, last)
            }
        }
    }

    /// Reads the part of the last chunk that a cut to `newLength` leaves. Nil if it leaves none.
    private func readRest(of newLength: UInt64, _ workspace: Workspace) throws(StoreError) -> UnsafeRawBufferPointer? {
        let last = layout.chunkIndex(ofPlaintextOffset: newLength)
        let piece = workspace.assembly.slice(..<Int(newLength % UInt64(layout.chunkSize)))
        if piece.isEmpty { return nil }
        try readChunk(last, into: piece, workspace)
        return UnsafeRawBufferPointer(piece)
    }

    private func applyCut(_ state: inout WriteState, to newLength: UInt64, _ last: UInt64) {
        setLength(&state, newLength)
        state.awaitedLength = state.awaitedLength.map { min($0, newLength) }
        state.loggedBytes = 0
        // The checkpoint frees what is past the end.
        state.space.end = 0
        // The next checkpoint makes it durable.
        state.tail = WriteState.Tail(layout.partialChunk(of: newLength))
        store.cache.removeAll(file: token, from: last)
    }

    /// True if the file is sparse and the record of a chunk with `size` bytes of plaintext is all zero.
    func isHole(_ chunk: UInt64, size: Int, _ workspace: Workspace) throws(StoreError) -> Bool {
        guard records.isSparse.load(ordering: .acquiring) else { return false }
        return try records.read(chunk, size: size, workspace).allSatisfy { $0 == 0 }
    }

    /// Cuts off what an unclean end may have left past the durable part of an unsealed file: new records that reached
    /// the disk in part, or not at all. The file then ends before the first record that does not verify. A sealed file
    /// ends at its length. Any other record that does not verify stays an error.
    ///
    /// A person who makes a file look so, and the vault's end unclean, has cut it at a chunk boundary, which an unsealed
    /// file cannot show in any case.
    func cutTornTail() throws(StoreError) {
        let before = length
        try cutTail()
        if length < before { lengths.isCutBack.store(true, ordering: .releasing) }
        // The end will count as a clean one, and this as looked at.
        if !store.isReadOnly, !isSealed { try reader.synchronize(dataOnly: true) }
    }

    private func cutTail() throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            let header = state.header
            if header.isSealed {
                guard length > header.length else { return }
                try cutBack(&state, store.isReadOnly ? nil : reader.reopenedForWriting())
                if !store.isReadOnly { try reader.synchronize(dataOnly: true) }
                return
            }
            guard let first = try firstTornChunk(header) else { return }
            let newLength = layout.plaintextOffset(ofChunk: first)
            if !store.isReadOnly {
                let writer = try reader.reopenedForWriting()
                try keepingAttributes(writer) { (_) throws(StoreError) in
                    try writer.truncate(to: layout.backingSize(ofPlaintextLength: newLength))
                }
                syncs.countWrite()
            }
            applyCut(&state, to: newLength, first)
        }
    }

    /// The first chunk at or past the header's durable length that does not verify. Nil if there is none, or if it is
    /// the chunk in which that length ends: such a one is damaged.
    func firstTornChunk(_ header: FileHeader) throws(StoreError) -> UInt64? {
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
            try self.records.read(chunk, into: records)
            var torn: UInt64?
            let plaintext = workspace.assembly.slice(..<(size - Int(end - chunk) * ChunkLayout.recordOverhead))
            _ = try workspace.scan(UnsafeRawBufferPointer(records), first: chunk, layout, keys.chunk, into: plaintext) {
                (chunk, record, _) in
                let isHole = header.isSparse && record.count == layout.recordSize && record.allSatisfy { $0 == 0 }
                if !isHole { torn = chunk }
                return isHole
            }
            if let torn { return torn }
            chunk = end
        }
        return nil
    }

    /// Cuts a file that is longer than its sealed header says back to the sealed length.
    /// - Parameter writer: nil for a read-only store, which only reads no further.
    func cutBack(_ state: inout WriteState, _ writer: Descriptor?) throws(StoreError) {
        let sealedLength = state.header.length
        let last = layout.chunkIndex(ofPlaintextOffset: sealedLength)
        if let writer {
            let workspace = try Workspace(layout: layout)
            let n = Int(sealedLength % UInt64(layout.chunkSize))
            // A longer record must become the short one that the sealed length ends with. One that does not verify is not
            // replaced. Reading it stays an error.
            let isHole = n > 0 ? try isHole(last, size: n, workspace) : false
            if n > 0, !isHole, try !decryptStored(last, into: workspace.edge.slice(..<n), workspace) {
                do throws(StoreError) {
                    return try shrinkBack(&state, writer, to: sealedLength, workspace)
                } catch .damaged {}
            }
            try writer.truncate(to: layout.backingSize(ofPlaintextLength: sealedLength))
            syncs.countWrite()
        } else {
            lengths.stored.store(length, ordering: .releasing)
        }
        applyCut(&state, to: sealedLength, last)
        lengths.setAuthentic(.max)
    }

    private func shrinkBack(
        _ state: inout WriteState, _ writer: Descriptor, to sealedLength: UInt64, _ workspace: Workspace
    ) throws(StoreError) {
        lengths.setAuthentic(.max)
        do throws(StoreError) { try shrink(&state, writer, to: sealedLength, workspace) } catch {
            lengths.setAuthentic(sealedLength)
            throw error
        }
    }
}

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
    private func punchPastEnd(_ writer: Descriptor) throws(StoreError) {
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
            try store.log.checkpoint(.holes(self))
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
        do throws(StoreError) {
            return UInt64(try retrying { lseek(reader.fd, off_t(from), whence) })
        } catch {
            if error == .system(.noSuchAddressOrDevice) { return nil }
            throw error
        }
    }
}
