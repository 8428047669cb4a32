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
        return try store.log.keepingUndoSpace { () throws(StoreError) in
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
    func writeZeros(
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
        state.tail.chunk = layout.partialChunk(of: newLength)
        store.cache.removeAll(file: token, from: last)
    }

    /// True if the file is sparse and the chunk's record is all zero.
    func isHole(_ chunk: UInt64, _ isSparse: Bool, _ workspace: Workspace) throws(StoreError) -> Bool {
        try isZeroRecord(chunk, size: layout.plaintextSize(ofChunk: chunk, length: length), isSparse, workspace)
    }

    private func isZeroRecord(
        _ chunk: UInt64, size: Int, _ isSparse: Bool, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        guard isSparse else { return false }
        let record = try records.read(chunk, size: size, workspace)
        return record.allSatisfy { $0 == 0 }
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
            var start = 0
            while start < size {
                let rest = UnsafeRawBufferPointer(records.slice(start...))
                let plaintextSize = rest.count - Int(end - chunk) * ChunkLayout.recordOverhead
                let good = try self.records.decrypt(
                    rest, first: chunk, into: workspace.assembly.slice(..<plaintextSize), workspace.cipher)
                chunk += UInt64(good)
                start += good * layout.recordSize
                guard start < size else { break }
                let record = records.slice(start..<min(start + layout.recordSize, size))
                guard header.isSparse, record.count == layout.recordSize, record.allSatisfy({ $0 == 0 }) else {
                    return chunk
                }
                chunk += 1
                start += layout.recordSize
            }
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
            let isHole = n > 0 ? try isZeroRecord(last, size: n, state.header.isSparse, workspace) : false
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
