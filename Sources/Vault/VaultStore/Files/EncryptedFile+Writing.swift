internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

extension EncryptedFile {
    /// Chunks that are put at once.
    private struct Batch {
        let first: UInt64
        let plaintext: UnsafeRawBufferPointer
        /// True if a program has written all of it.
        let isWhole: Bool
        /// True if the records go to the log, false if they are written past the end.
        let isLogged: Bool
        /// True if the log has the file's length.
        let isLengthLogged: Bool
    }

    /// Bytes that are logged, while the log has a file's length, before a checkpoint. Small files that are rewritten stay
    /// below.
    private static let mostLogged = 4 << 20
    /// Bytes of new chunks that are logged between two syncs, and in one write. A file that grows between frequent syncs
    /// then needs only those of the log.
    private static let mostLoggedGrowth = 256 << 10
    private static let largestLoggedGrowth = 64 << 10
    /// Space that is allocated at once for a file whose growth is logged, or four times what is written if that is more.
    private static let reservedAhead: UInt64 = 128 << 10

    /// The size of a file that every store can have, in bytes.
    private static let anyStoreHas = UInt64(Int32.max)

    /// Bytes past the durable length that an open after an unclean end may have to verify.
    private static let mostUnproven = 256 << 20

    /// Writes plaintext. Returns the number of bytes written, which is less than given only if the store took no more.
    /// After a crash every chunk is either old or new: an existing chunk is written to the log, a new one in place, or to
    /// the log if that needs fewer syncs (`logsGrowth`) or the log has the file's length.
    /// - Throws: the error of `Store.admitChange`; `EFBIG`, and `.system` with errno, such as `ENOSPC`; `.damaged`
    ///   for chunks that are read first.
    package func write(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, workspace: Workspace
    ) throws(StoreError) -> Int {
        let (end, overflow) = plaintextOffset.addingReportingOverflow(UInt64(data.count))
        // The backing file's offsets must fit off_t.
        guard !overflow, end <= Self.largestLength else { throw .system(.fileTooLarge) }
        return try writing.withLock { (state) throws(StoreError) -> Int in
            let writer = try writer(&state)
            guard plaintextOffset > length else {
                return try writeChunks(&state, writer, data, at: plaintextOffset, workspace)
            }
            return try growing(&state, writer, workspace) { (state) throws(StoreError) in
                try extend(&state, writer, to: plaintextOffset, workspace)
                return try writeChunks(&state, writer, data, at: plaintextOffset, workspace)
            }
        }
    }

    /// Writes at or before the end, batch by batch.
    func writeChunks(
        _ state: inout WriteState, _ writer: Descriptor, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Int {
        if plaintextOffset + UInt64(data.count) > length { try unseal(&state, writer) }
        var (done, shared) = try writeBeside(&state, writer, data, at: plaintextOffset, workspace)
        if done < shared { return done }
        while done < data.count {
            do throws(StoreError) {
                done += try writeBatch(
                    &state, writer, data.slice(done...), at: plaintextOffset + UInt64(done), workspace)
            } catch {
                if done > 0 { return done }
                throw error
            }
        }
        return done
    }

    /// Writes the leading part of `data`, if it is large, by the worker and the helper. Both encrypt batches at the same time,
    /// and put one after the other, so an interrupted write leaves what it leaves if the worker is alone.
    /// - Returns: the number of bytes written, and how many they are unless the store takes no more. 0 if the write is not
    ///   one for two threads.
    private func writeBeside(
        _ state: inout WriteState, _ writer: Descriptor, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> (done: Int, shared: Int) {
        let chunkSize = layout.chunkSize
        guard let helper = workspace.helper, data.count >= RequestHelper.smallestShared,
            plaintextOffset % UInt64(chunkSize) == 0
        else { return (0, 0) }
        let isNew = plaintextOffset == length
        // A partial chunk among existing ones is read first, by the worker.
        let count = isNew ? data.count : data.count - data.count % chunkSize
        guard isNew || plaintextOffset + UInt64(count) <= length else { return (0, 0) }
        let isLengthLogged = try limitLoggedLength(&state)
        let isLogged = isLengthLogged || !isNew
        if !isLogged { try beginGrowth(&state) }
        let batchSize = workspace.batchChunks * chunkSize
        // The first batch is half as large, so that it is put sooner, while the next ones are encrypted.
        let offset = workspace.batchChunks / 2 * chunkSize
        let range: @Sendable (Int) -> Range<Int> = {
            max(0, $0 * batchSize - offset)..<min(count, ($0 + 1) * batchSize - offset)
        }
        // Both threads have ended when `share` returns, and only one at a time finishes a batch.
        nonisolated(unsafe) let data = data
        return try withUnsafeMutablePointer(to: &state) { (state) throws(StoreError) in
            nonisolated(unsafe) let state = state
            let pieces = (count + offset + batchSize - 1) / batchSize
            let (done, error) = helper.share(pieces, workspace) { (index, workspace) throws(StoreError) in
                let range = range(index)
                let plaintext = data.slice(range)
                _ = try self.records.encrypt(
                    plaintext, first: (plaintextOffset + UInt64(range.lowerBound)) / UInt64(chunkSize),
                    chunks: (plaintext.count + chunkSize - 1) / chunkSize, workspace)
            } finish: { (index, workspace) throws(StoreError) in
                let range = range(index)
                let batch = Batch(
                    first: (plaintextOffset + UInt64(range.lowerBound)) / UInt64(chunkSize),
                    plaintext: data.slice(range),
                    isWhole: true, isLogged: isLogged, isLengthLogged: isLengthLogged)
                try self.put(
                    batch, &state.pointee, writer, length: max(self.length, plaintextOffset + UInt64(range.upperBound)),
                    workspace)
            }
            if done == 0, let error { throw error }
            return (done == pieces ? count : range(done).lowerBound, count)
        }
    }

    /// Writes the leading part of `data` that lies in one batch of chunks. Returns its size.
    private func writeBatch(
        _ state: inout WriteState, _ writer: Descriptor, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = UInt64(layout.chunkSize)
        let oldLength = length
        let first = plaintextOffset / chunkSize
        let existing = layout.chunkCount(ofLength: oldLength)
        let isLengthLogged = try limitLoggedLength(&state)
        // A batch is either logged or written in place.
        let logsGrowth = isLengthLogged || logsGrowth(state, from: first, data.count)
        let isLogged = first < existing || logsGrowth
        var limit = UInt64(workspace.batchChunks)
        if isLogged && !logsGrowth { limit = min(limit, existing - first) }
        let regionStart = first * chunkSize
        let dataEnd = min(plaintextOffset + UInt64(data.count), regionStart + limit * chunkSize)
        let chunks = Int((dataEnd - 1) / chunkSize - first) + 1
        let newLength = max(oldLength, dataEnd)
        let regionEnd = min(regionStart + UInt64(chunks) * chunkSize, newLength)
        let given = data.slice(..<Int(dataEnd - plaintextOffset))

        let isWhole = plaintextOffset == regionStart && dataEnd == regionEnd
        let plaintext =
            isWhole
            ? given
            : try assemble(given, at: plaintextOffset, region: regionStart..<regionEnd, oldLength: oldLength, workspace)
        _ = try records.encrypt(plaintext, first: first, chunks: chunks, workspace)
        if !isLogged { try beginGrowth(&state) }
        let batch = Batch(
            first: first, plaintext: plaintext, isWhole: isWhole, isLogged: isLogged, isLengthLogged: isLengthLogged)
        try put(batch, &state, writer, length: newLength, workspace)
        return given.count
    }

    /// Puts a batch into the log or past the end, from the records in `workspace`, and then lets readers see it.
    private func put(
        _ batch: Batch, _ state: inout WriteState, _ writer: Descriptor, length newLength: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) {
        let chunks = (batch.plaintext.count + layout.chunkSize - 1) / layout.chunkSize
        let encrypted = ChunkRecords.encrypted(batch.plaintext.count, chunks: chunks, workspace)
        try changes.during { () throws(StoreError) in
            try store.counters.storeTime.time { () throws(StoreError) in
                if batch.isLogged {
                    try append(
                        .records, first: batch.first, bodySize: encrypted.count,
                        exactLength: batch.isLengthLogged ? newLength : nil, &state, writer, workspace)
                    if newLength > length { state.loggedGrowth += encrypted.count }
                    if batch.isLengthLogged { state.loggedBytes += encrypted.count }
                    if let tail = state.tail.chunk, batch.first..<(batch.first + UInt64(chunks)) ~= tail {
                        state.tail = .replaced(tail, by: records.log.lastSequence)
                    }
                } else {
                    try writePastEnd(&state, writer, encrypted, first: batch.first)
                }
            }
            setLength(&state, newLength)
            for index in 0..<chunks {
                let chunk = batch.first + UInt64(index)
                let start = index * layout.chunkSize
                let end = min(start + layout.chunkSize, batch.plaintext.count)
                // A partial last chunk too: the next append then need not read it.
                if batch.isWhole && end - start == layout.chunkSize {
                    store.cache.remove(file: token, chunk: chunk)
                } else {
                    store.cache.update(file: token, chunk: chunk, batch.plaintext.slice(start..<end))
                }
            }
        }
    }

    /// Puts together the batch's plaintext if the data covers its first or last chunk only in part. The rest is read
    /// from disk.
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
        if filled > 0 { try readChunk(chunk, into: part.slice(..<filled), workspace) }
        part.slice(filled...).fill(with: 0)
    }

    /// Reads the first bytes of one chunk. The caller holds the write lock.
    func readChunk(
        _ chunk: UInt64, into plaintext: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) {
        guard let base = plaintext.baseAddress else { return }
        if store.cache.copy(file: token, chunk: chunk, range: 0..<plaintext.count, to: base) {
            store.counters.cacheHits.count()
            return
        }
        store.counters.cacheMisses.count()
        let n = layout.plaintextSize(ofChunk: chunk, length: length)
        let record = workspace.records.slice(..<(n + ChunkLayout.recordOverhead))
        try records.read(chunk, into: record)
        let edge = workspace.edge.slice(..<n)
        try countingDamage { () throws(StoreError) in
            guard
                try decryptOrSubstitute(
                    UnsafeRawBufferPointer(record), first: chunk, into: edge, started: changes.value, workspace)
            else { throw .damaged("chunk \(chunk): its data is damaged") }
        }
        plaintext.copyMemory(from: UnsafeRawBufferPointer(edge.slice(..<plaintext.count)))
    }

    /// Makes a checkpoint if much was logged since the log has the file's length. Returns true if it still has it.
    private func limitLoggedLength(_ state: inout WriteState) throws(StoreError) -> Bool {
        guard records.log.hasLength else {
            state.loggedBytes = 0
            return false
        }
        guard state.loggedBytes > Self.mostLogged else { return true }
        try putEverythingInPlace(&state)
        return false
    }

    /// True if few new chunks are written, and in place they would need a sync first: the durable tail is being replaced.
    private func logsGrowth(_ state: WriteState, from first: UInt64, _ count: Int) -> Bool {
        guard count <= Self.largestLoggedGrowth, state.loggedGrowth < Self.mostLoggedGrowth else { return false }
        switch state.tail {
        case .free: return false
        case .durable(let chunk): return chunk >= first
        case .replaced(let chunk, let sequence):
            return sequence > store.log.durableSequence || chunk.map { $0 >= first } ?? false
        }
    }

    /// Puts everything in place, so that the backing file's size is that of the file again.
    func putEverythingInPlace(_ state: inout WriteState) throws(StoreError) {
        try store.log.checkpoint(.change(self))
        state.loggedBytes = 0
        state.tail = WriteState.Tail(layout.partialChunk(of: length))
    }

    /// Makes sure, before a chunk is written past the end, that a power cut cannot leave it there without the current
    /// last chunk. Until then the durable tail's old record ends the file.
    func beginGrowth(_ state: inout WriteState) throws(StoreError) {
        switch state.tail {
        case .free: break
        case .durable: preconditionFailure("an entry replaces a partial chunk before another chunk follows it")
        case .replaced(_, let sequence):
            store.log.awaitRenewal()
            try store.log.synchronize(through: sequence)
        }
        state.tail = .free
        state.loggedGrowth = 0
    }

    /// Writes new records past the end of the file, after `beginGrowth`.
    private func writePastEnd(
        _ state: inout WriteState, _ writer: Descriptor, _ encrypted: UnsafeRawBufferPointer, first: UInt64
    ) throws(StoreError) {
        guard case .free = state.tail else { preconditionFailure("growth begins before new chunks are written") }
        let start = layout.recordOffset(ofChunk: first)
        // A write past the end that fails makes ext4 drop all space there, also that of records which the log has
        // (ext4_truncate_failed_write in fs/ext4/truncate.h, seen on 6.1). fallocate(2) fails without that.
        if isLogged { try reserveAhead(&state, writer, start..<(start + UInt64(encrypted.count))) }
        do throws(StoreError) {
            try writer.write(encrypted, at: start)
        } catch {
            // Only bytes past the old end were written. They are removed again.
            _ = try? writer.truncate(to: start)
            // This frees space that was allocated for more.
            state.space.end = 0
            throw error
        }
        syncs.countWrite()
        records.log.raiseTime()
        store.counters.ciphertextBytesWritten.count(encrypted.count)
    }

    /// Makes sure that the store can put an entry in place, before it is appended: a checkpoint must not run out of space for
    /// what was acknowledged.
    func reserve(for entry: LogEntry, _ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        if entry.isExact { try admitSize(layout.backingSize(ofPlaintextLength: entry.length), writer) }
        guard entry.kind == .records else { return }
        let start = layout.recordOffset(ofChunk: entry.first)
        let range = start..<(start + UInt64(entry.bodySize))
        if range.upperBound > layout.backingSize(ofPlaintextLength: length) {
            try reserveAhead(&state, writer, range)
        } else if state.header.isSparse {
            try reserve(writer, range)
        }
    }

    /// Makes sure that records past the end have space, and a few that may follow them.
    private func reserveAhead(
        _ state: inout WriteState, _ writer: Descriptor, _ range: Range<UInt64>
    ) throws(StoreError) {
        let releases = records.log.spaceReleases.load(ordering: .acquiring)
        if range.upperBound <= state.space.end && releases == state.space.releases { return }
        var end = range.upperBound + max(Self.reservedAhead, 4 * UInt64(range.count))
        do throws(StoreError) { try reserve(writer, range.lowerBound..<end) } catch {
            end = range.upperBound
            try reserve(writer, range)
        }
        (state.space.end, state.space.releases) = (end, releases)
    }

    /// Makes sure that records have space. KEEP_SIZE: the length stays.
    /// - Throws: `ENOSPC`, `EDQUOT`, `EFBIG`.
    private func reserve(_ writer: Descriptor, _ range: Range<UInt64>) throws(StoreError) {
        do throws(StoreError) {
            try retrying {
                linux_fallocate(
                    writer.fd, linux_FALLOC_FL_KEEP_SIZE, Int64(range.lowerBound), Int64(range.count))
            }
        } catch {
            if error.isNoSpace || error == .system(.fileTooLarge) { throw error }
            // A store without fallocate(2) cannot promise space. The log then keeps the chunk whole.
            try admitSize(range.upperBound, writer)
        }
    }

    /// Makes sure that the store can have a file of this size: lseek(2) compares it with that of the largest (s_maxbytes in
    /// fs/read_write.c). A FUSE store does not tell its own.
    /// - Throws: `EFBIG`.
    private func admitSize(_ size: UInt64, _ writer: Descriptor) throws(StoreError) {
        if size <= Self.anyStoreHas { return }
        if lseek(writer.fd, off_t(size), SEEK_SET) < 0, currentErrno() == .invalidArgument {
            throw .system(.fileTooLarge)
        }
    }

    /// Sets a new length. The caller holds the write lock.
    func setLength(_ state: inout WriteState, _ newLength: UInt64) {
        if newLength == length { return }
        state.changeLength(to: newLength)
        lengths.set(newLength)
        let grown = Int64(clamping: newLength) - Int64(clamping: state.header.length)
        if grown >= Self.mostUnproven, case .unsealed(_, nil) = state.phase, !records.log.hasLength,
            store.durability.schedule.addGrown(self)
        {
            state.awaitedLength = newLength - newLength % UInt64(layout.chunkSize)
        }
    }
}
