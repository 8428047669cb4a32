internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// The destination of a write's records. After a crash every chunk is either old or new, because existing chunks go to
/// the log, and new ones in place. The log also gets new ones if this needs fewer syncs, or if it has the file's
/// length.
private enum Destiny {
    case log
    /// The log, in entries with the file's length, because the log has that already.
    case logWithLength
    case pastEnd
}

/// A part of a write with one destiny: existing chunks, new ones, or both if they are logged together.
private struct WritePiece {
    /// Plaintext offsets.
    let range: Range<UInt64>
    let destiny: Destiny
}

extension FileWriter {
    /// The maximum plaintext length. It leaves room for the records' overhead in a 64-bit file size.
    static let largestLength = UInt64(Int64.max) / 2

    /// Does `EncryptedFile.write`.
    mutating func write(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let (end, overflow) = plaintextOffset.addingReportingOverflow(UInt64(data.count))
        // The backing file's offsets must fit off_t.
        guard !overflow, end <= Self.largestLength else { throw .system(.fileTooLarge) }
        try prepare()
        guard plaintextOffset > length else { return try writeChunks(data, at: plaintextOffset, workspace) }
        return try grow(workspace) { (writer) throws(StoreError) in
            try writer.extend(to: plaintextOffset, workspace)
            return try writer.writeChunks(data, at: plaintextOffset, workspace)
        }
    }

    /// Writes at or before the end, piece by piece.
    mutating func writeChunks(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let end = plaintextOffset + UInt64(data.count)
        // The log's length cuts the file off itself, once it is durable.
        if end > length, space.hasRest, !parts.log.hasLength { try cutFragment() }
        if end > length { try unseal() }
        var done = 0
        while done < data.count {
            do throws(StoreError) {
                let piece = try nextPiece(of: (plaintextOffset + UInt64(done))..<end)
                let rest = data.slice(done..<Int(piece.range.upperBound - plaintextOffset))
                if piece.destiny == .pastEnd { try beginGrowth() }
                let shared = sharedSize(of: piece, workspace)
                if shared > 0, let helper = workspace.helper {
                    let written = try write(rest.slice(..<shared), of: piece, helper, workspace)
                    done += written
                    if written < shared { return done }
                } else {
                    done += try writeBatch(rest, of: piece, workspace)
                }
            } catch {
                if done > 0 { return done }
                throw error
            }
        }
        return done
    }

    /// Returns the leading part of a write with one destiny. New chunks go to the log in two cases: while it has the
    /// file's length, and if a few are cheaper there (`Growth.shouldLog`). A gap is an entry too then (`extend`).
    private mutating func nextPiece(of range: Range<UInt64>) throws(StoreError) -> WritePiece {
        let chunkSize = UInt64(layout.chunkSize)
        let first = range.lowerBound / chunkSize
        let existing = layout.chunkCount(ofLength: length)
        if try isLengthLogged() { return WritePiece(range: range, destiny: .logWithLength) }
        if growth.shouldLog(bytes: range.count, from: first, durableSequence: store.log.durableSequence) {
            return WritePiece(range: range, destiny: .log)
        }
        guard first < existing else { return WritePiece(range: range, destiny: .pastEnd) }
        return WritePiece(range: range.lowerBound..<min(range.upperBound, existing * chunkSize), destiny: .log)
    }

    /// Returns true if the log has the file's length. If much was logged with it, makes a checkpoint and returns false.
    private mutating func isLengthLogged() throws(StoreError) -> Bool {
        guard parts.log.hasLength else { return false }
        guard growth.bytesWithLength > Growth.mostLogged else { return true }
        try putEverythingInPlace()
        return false
    }

    /// Returns the size of the leading part of a piece for two threads: whole chunks, and a partial last one that ends
    /// the file. The worker alone writes a partial chunk among existing ones, after reading it. 0 if the part is too
    /// small.
    private func sharedSize(of piece: WritePiece, _ workspace: Workspace) -> Int {
        let chunkSize = layout.chunkSize
        guard workspace.helper != nil, piece.range.count >= RequestHelper.smallestShared,
            piece.range.lowerBound % UInt64(chunkSize) == 0
        else { return 0 }
        // The halved first batch makes one more.
        let most = (RequestHelper.mostInOrder - 1) * workspace.batchChunks * chunkSize
        let isEnd = piece.range.upperBound >= length && piece.range.count <= most
        let count = min(isEnd ? piece.range.count : piece.range.count - piece.range.count % chunkSize, most)
        return count >= RequestHelper.smallestShared && count > workspace.batchChunks * chunkSize ? count : 0
    }

    /// Writes a part of a piece by the worker and the helper. Both encrypt batches at the same time, but the worker
    /// puts them, one after the other, so an interrupted write leaves the same as with the worker alone.
    /// - Returns: the number of bytes written.
    private mutating func write(
        _ data: UnsafeRawBufferPointer, of piece: WritePiece, _ helper: RequestHelper, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = layout.chunkSize
        let count = data.count
        let start = piece.range.lowerBound
        let batchSize = workspace.batchChunks * chunkSize
        // Halve the first batch, so that it is put early, while the next ones are encrypted.
        let offset = workspace.batchChunks / 2 * chunkSize
        let range: @Sendable (Int) -> Range<Int> = {
            max(0, $0 * batchSize - offset)..<min(count, ($0 + 1) * batchSize - offset)
        }
        // Both threads have ended when `shareInOrder` returns.
        nonisolated(unsafe) let data = data
        let parts = parts
        let batches = (count + offset + batchSize - 1) / batchSize
        let (done, error) = helper.shareInOrder(batches, in: workspace.logEntry, workspace) {
            (index, entry, workspace) throws(StoreError) in
            let range = range(index)
            try parts.encrypt(
                data.slice(range), first: (start + UInt64(range.lowerBound)) / UInt64(chunkSize), into: entry,
                workspace.cipher)
        } finish: { (index, entry) throws(StoreError) in
            let range = range(index)
            try put(
                data.slice(range), first: (start + UInt64(range.lowerBound)) / UInt64(chunkSize), isWhole: true,
                piece.destiny, length: max(length, start + UInt64(range.upperBound)), entry)
        }
        if done == 0, let error { throw error }
        return done == batches ? count : range(done).lowerBound
    }

    /// Writes as much of `data`, the rest of a piece, as one batch of chunks holds. Returns its size.
    private mutating func writeBatch(
        _ data: UnsafeRawBufferPointer, of piece: WritePiece, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = UInt64(layout.chunkSize)
        let oldLength = length
        let start = piece.range.lowerBound
        let first = start / chunkSize
        let regionStart = first * chunkSize
        let dataEnd = min(piece.range.upperBound, regionStart + UInt64(workspace.batchChunks) * chunkSize)
        let chunks = Int((dataEnd - 1) / chunkSize - first) + 1
        let newLength = max(oldLength, dataEnd)
        let regionEnd = min(regionStart + UInt64(chunks) * chunkSize, newLength)
        let given = data.slice(..<Int(dataEnd - start))

        let isWhole = start == regionStart && dataEnd == regionEnd
        let plaintext =
            isWhole
            ? given
            : try assemble(given, at: start, region: regionStart..<regionEnd, oldLength: oldLength, workspace)
        try parts.encrypt(plaintext, first: first, into: workspace.logEntry, workspace.cipher)
        try put(plaintext, first: first, isWhole: isWhole, piece.destiny, length: newLength, workspace.logEntry)
        return given.count
    }

    /// Puts a batch of chunks at its destination, then lets readers see it.
    /// - Parameters:
    ///   - isWhole: true if a program has written all of it.
    ///   - entry: has the batch's records.
    private mutating func put(
        _ plaintext: UnsafeRawBufferPointer, first: UInt64, isWhole: Bool, _ destiny: Destiny,
        length newLength: UInt64, _ entry: UnsafeMutableRawBufferPointer
    ) throws(StoreError) {
        let chunks = (plaintext.count + layout.chunkSize - 1) / layout.chunkSize
        let size = plaintext.count + chunks * ChunkLayout.recordOverhead
        let encrypted = UnsafeRawBufferPointer(Workspace.records(of: entry).slice(..<size))
        try parts.changes.during { () throws(StoreError) in
            try parts.store.counters.storeTime.time { () throws(StoreError) in
                if destiny == .pastEnd { return try writePastEnd(encrypted, first: first) }
                let hasLength = destiny == .logWithLength
                try append(
                    .records, first: first, bodySize: encrypted.count, exactLength: hasLength ? newLength : nil,
                    in: entry)
                growth.logged(
                    first..<(first + UInt64(chunks)), encrypted.count, as: parts.log.lastSequence,
                    isNew: newLength > length, hasLength: hasLength)
            }
            setLength(newLength)
            for index in 0..<chunks {
                let chunk = first + UInt64(index)
                let start = index * layout.chunkSize
                let end = min(start + layout.chunkSize, plaintext.count)
                // Keep a partial last chunk too, so that the next append need not read it.
                if isWhole && end - start == layout.chunkSize {
                    parts.store.cache.remove(file: parts.token, chunk: chunk)
                } else {
                    parts.store.cache.update(file: parts.token, chunk: chunk, plaintext.slice(start..<end))
                }
            }
        }
    }

    /// Assembles the batch's plaintext if the data covers its first or last chunk only in part, with the rest from
    /// disk.
    private func assemble(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, region: Range<UInt64>, oldLength: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> UnsafeRawBufferPointer {
        let chunkSize = UInt64(layout.chunkSize)
        let assembled = workspace.assembly.slice(..<Int(region.upperBound - region.lowerBound))
        let dataEnd = plaintextOffset + UInt64(data.count)
        let first = region.lowerBound / chunkSize
        let last = (region.upperBound - 1) / chunkSize
        if plaintextOffset > region.lowerBound || (first == last && dataEnd < region.upperBound) {
            try loadChunk(first, into: assembled, at: 0, workspace)
        }
        if last > first && dataEnd < region.upperBound {
            try loadChunk(last, into: assembled, at: Int((last - first) * chunkSize), workspace)
        }
        let start = Int(plaintextOffset - region.lowerBound)
        assembled.slice(start..<(start + data.count)).copyMemory(from: data)
        return UnsafeRawBufferPointer(assembled)
    }

    /// Fills a chunk's part of the assembly with the file's content and zeros after it.
    private func loadChunk(
        _ chunk: UInt64, into assembled: UnsafeMutableRawBufferPointer, at start: Int, _ workspace: Workspace
    ) throws(StoreError) {
        let part = assembled.slice(start..<min(start + layout.chunkSize, assembled.count))
        let filled = min(layout.plaintextSize(ofChunk: chunk, length: length), part.count)
        if filled > 0 { try RunReader(parts: parts).readStart(ofChunk: chunk, into: part.slice(..<filled), workspace) }
        part.slice(filled...).fill(with: 0)
    }

    // MARK: Past the end

    /// Makes the entry for a replaced last chunk durable before a chunk is written past the end. Otherwise a power cut
    /// could leave the new chunk after the tail's old record, which ends the file until then.
    mutating func beginGrowth() throws(StoreError) {
        switch growth.tail {
        case .free: break
        case .durable: preconditionFailure("an entry replaces a partial chunk before another chunk follows it")
        case .replaced(_, let sequence):
            store.log.awaitRenewal()
            try store.log.synchronize(through: sequence)
        }
        growth.release()
    }

    /// Writes new records past the end of the file, after `beginGrowth`.
    private mutating func writePastEnd(_ encrypted: UnsafeRawBufferPointer, first: UInt64) throws(StoreError) {
        guard case .free = growth.tail else { preconditionFailure("growth begins before new chunks are written") }
        let start = layout.recordOffset(ofChunk: first)
        // A failed write past the end makes ext4 drop all space there, also that of logged records
        // (ext4_truncate_failed_write in fs/ext4/truncate.h, seen on 6.1). A failed fallocate(2) does not.
        if parts.isLogged { try reserveAhead(start..<(start + UInt64(encrypted.count))) }
        do throws(StoreError) {
            try descriptor.write(encrypted, at: start)
        } catch {
            // Only bytes past the old end were written. Remove them again.
            space.hasRest = (try? descriptor.truncate(to: start)) == nil
            // The cut also frees space allocated for more.
            space.end = 0
            throw error
        }
        parts.syncs.countWrite()
        parts.log.raiseTime()
        store.counters.ciphertextBytesWritten.count(encrypted.count)
    }

    // MARK: The log

    /// Appends an entry of a change.
    /// - Parameters:
    ///   - buffer: has the records of an entry with a body.
    ///   - exactLength: the file's length from then on, if the log has it.
    ///   - undoes: true if the entry takes back a growth.
    /// - Throws: `ENOSPC` if the records have no space in place, `EFBIG` if the store cannot have so large a file.
    mutating func append(
        _ kind: LogEntry.Kind, first: UInt64 = 0, end: UInt64 = 0, bodySize: Int = 0, exactLength: UInt64?,
        undoes: Bool = false, in buffer: UnsafeMutableRawBufferPointer
    ) throws(StoreError) {
        let entry = LogEntry(
            kind, fileID: parts.fileID, sealCounter: header.sealCounter, first: first, end: end, bodySize: bodySize,
            exactLength: exactLength)
        try parts.store.log.append(
            entry, undoes: undoes, in: buffer, of: file, descriptor,
            // A growth that is taken back leaves the record that was there, which has its space. A full ext4 refuses to
            // reserve it once more, if it is still only in memory.
            reserving: { () throws(StoreError) in if !undoes { try reserve(for: entry) } },
            { [parts, layout] logged, log in parts.log.add(logged, in: log, layout) })
        parts.store.counters.ciphertextBytesWritten.count(bodySize)
    }
}

/// Space for logged records, reserved first: a checkpoint must not run out of space for acknowledged writes.
extension FileWriter {
    /// Bytes allocated at once for a file whose growth is logged, or four times the written size if that is more.
    private static let reservedAhead: UInt64 = 128 << 10
    /// A file size possible in every store, in bytes.
    private static let anyStoreHas = UInt64(Int32.max)

    /// Reserves what an entry needs in place, before it is appended: space, and a file size that the store can have.
    private mutating func reserve(for entry: LogEntry) throws(StoreError) {
        if entry.isExact { try admitSize(layout.backingSize(ofPlaintextLength: entry.length)) }
        guard entry.kind == .records else { return }
        let start = layout.recordOffset(ofChunk: entry.first)
        let range = start..<(start + UInt64(entry.bodySize))
        if range.upperBound > layout.backingSize(ofPlaintextLength: length) {
            try reserveAhead(range)
        } else if header.isSparse {
            try reserve(range)
        }
    }

    /// Reserves space for records past the end, and for a few that may follow them.
    private mutating func reserveAhead(_ range: Range<UInt64>) throws(StoreError) {
        let freed = parts.log.freedSpace.load(ordering: .acquiring)
        if range.upperBound <= space.end && freed == space.freed { return }
        var end = range.upperBound + max(Self.reservedAhead, 4 * UInt64(range.count))
        do throws(StoreError) { try reserve(range.lowerBound..<end) } catch {
            end = range.upperBound
            try reserve(range)
        }
        (space.end, space.freed) = (end, freed)
    }

    /// Reserves space for records.
    /// - Throws: `ENOSPC`, `EDQUOT`, `EFBIG`.
    private func reserve(_ range: Range<UInt64>) throws(StoreError) {
        do throws(StoreError) { try descriptor.allocate(range) } catch {
            if error.isNoSpace || error == .system(.fileTooLarge) { throw error }
            // A store without fallocate(2) cannot promise space. The log then keeps the chunk whole.
            try admitSize(range.upperBound)
        }
    }

    /// Checks that the store can have a file of this size: lseek(2) compares it with the maximum (s_maxbytes in
    /// fs/read_write.c). A FUSE store does not report its own maximum.
    /// - Throws: `EFBIG`.
    private func admitSize(_ size: UInt64) throws(StoreError) {
        if size <= Self.anyStoreHas { return }
        if lseek(descriptor.fd, off_t(size), SEEK_SET) < 0, currentErrno() == .invalidArgument {
            throw .system(.fileTooLarge)
        }
    }
}
