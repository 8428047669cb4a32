internal import FileSystem
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Requests of more chunks than this bypass the block cache, where they would only replace what random reads use.
    private static let largestCachedRun = 16
    /// Number of times that a record is read again while writers are running, before writers are locked out.
    private static let maximumRetries = 3

    /// Reads plaintext. Returns the number of bytes read, which is less than asked for only at the end of the file.
    /// - Parameter isAhead: true if the block cache may have the range because of `readAhead`. It is then not needed there
    ///   any more.
    /// - Throws: `.damaged` if a chunk of the range does not verify.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, isAhead: Bool = false,
        workspace: Workspace
    ) throws(StoreError) -> Int {
        try countingDamage { () throws(StoreError) in
            store.followsWriter
                ? try readFollowing(at: plaintextOffset, into: buffer, workspace: workspace)
                : try readKnown(
                    at: plaintextOffset, into: buffer, isAhead: isAhead, mayCache: true, workspace: workspace)
        }
    }

    /// Decrypts at most one batch of the chunks from this offset on into the block cache. Returns its end, or `.max` at
    /// the end of the file. Nil if another machine may change it, or the keys were wiped.
    /// - Throws: `.damaged`; `.locked` without the keys; `.system` with errno.
    package func readAhead(at plaintextOffset: UInt64, workspace: Workspace) throws(StoreError) -> UInt64? {
        let length = min(self.length, authenticLength)
        guard !store.followsWriter, hasKeys else { return nil }
        guard plaintextOffset < length else { return .max }
        let first = layout.chunkIndex(ofPlaintextOffset: plaintextOffset)
        let start = layout.plaintextOffset(ofChunk: first)
        if store.cache.contains(file: token, chunk: first) { return min(length, start + UInt64(layout.chunkSize)) }
        let count = Int(min(UInt64(workspace.batchChunks * layout.chunkSize), length - start))
        let read = try readRun(
            at: start, into: workspace.reply.slice(..<count), isCached: true, workspace: workspace)
        return read == 0 ? .max : start + UInt64(read)
    }

    /// Reads by the known length.
    /// - Parameter mayCache: false for data that another machine writes. It is read again each time.
    func readKnown(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, isAhead: Bool = false, mayCache: Bool,
        workspace: Workspace
    ) throws(StoreError) -> Int {
        let length = self.length
        let authentic = authenticLength
        guard plaintextOffset < length, buffer.count > 0 else { return 0 }
        if plaintextOffset >= authentic {
            throw .damaged("it should be \(authentic) bytes long, read at \(plaintextOffset)")
        }
        let count = Int(min(UInt64(buffer.count), min(length, authentic) - plaintextOffset))
        let wanted = buffer.slice(..<count)
        let chunkSize = UInt64(layout.chunkSize)
        let chunks = Int((plaintextOffset + UInt64(count) - 1) / chunkSize - plaintextOffset / chunkSize) + 1
        let isCached = mayCache && chunks <= Self.largestCachedRun
        // After the first chunk that is missing, those after it are, too.
        var mayBeCached = isCached || isAhead
        var done = isCached || isAhead ? 0 : try readBeside(at: plaintextOffset, into: wanted, workspace)
        while done < count {
            let offset = plaintextOffset + UInt64(done)
            let rest = wanted.slice(done...)
            if mayBeCached, let hit = readFromCache(at: offset, into: rest, isAhead: isAhead) {
                done += hit
            } else {
                mayBeCached = isCached
                let read = try readRun(at: offset, into: rest, isCached: isCached, workspace: workspace)
                // The file has been cut while it was read.
                if read == 0 { return done }
                done += read
            }
        }
        return count
    }

    /// Reads the whole batches of a large range by the worker and the helper at the same time.
    /// - Returns: the number of bytes read. What follows them is left to the worker, also if it is damaged or was cut.
    private func readBeside(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        guard let helper = workspace.helper, wanted.count >= RequestHelper.smallestShared,
            plaintextOffset % UInt64(layout.chunkSize) == 0
        else { return 0 }
        let batchSize = workspace.batchChunks * layout.chunkSize
        // Both threads have ended when `share` returns.
        nonisolated(unsafe) let wanted = wanted
        let batches = helper.share(wanted.count / batchSize, workspace) { (index, workspace) throws(StoreError) in
            let start = index * batchSize
            let read = try self.readRun(
                at: plaintextOffset + UInt64(start), into: wanted.slice(start..<(start + batchSize)), isCached: false,
                workspace: workspace)
            guard read == batchSize else { throw .system(.interrupted) }
        }
        return batches.done * batchSize
    }

    /// Copies the wanted part of the chunk at this offset from the block cache. Nil if it is not there.
    private func readFromCache(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, isAhead: Bool
    ) -> Int? {
        let chunkSize = layout.chunkSize
        let start = Int(plaintextOffset % UInt64(chunkSize))
        let count = min(chunkSize - start, wanted.count)
        guard let destination = wanted.baseAddress,
            store.cache.copy(
                file: token, chunk: plaintextOffset / UInt64(chunkSize), range: start..<(start + count),
                isLastUse: isAhead && start + count == chunkSize, to: destination)
        else { return nil }
        store.counters.cacheHits.count()
        return count
    }

    /// Reads a run of adjacent chunks that are not cached with one pread(2), at most one batch. Returns the number of
    /// bytes read.
    private func readRun(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, isCached: Bool, workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = UInt64(layout.chunkSize)
        let first = plaintextOffset / chunkSize
        let last = (plaintextOffset + UInt64(wanted.count) - 1) / chunkSize
        var run = 1
        while run < workspace.batchChunks, first + UInt64(run) <= last,
            !(isCached && store.cache.contains(file: token, chunk: first + UInt64(run)))
        { run += 1 }
        let skipped = Int(plaintextOffset - first * chunkSize)
        let count = min(run * Int(chunkSize) - skipped, wanted.count)
        let destination = wanted.slice(..<count)
        if isCached { store.counters.cacheMisses.count(run) }
        for _ in 0..<Self.maximumRetries {
            let seen = changes.value
            if try tryRun(first, run, skipped, destination, isCached ? seen : nil, workspace) { return count }
            // Without a running writer, it is damage.
            if changes.value == seen && !ChangeCounter.isChanging(seen) { break }
        }
        return try writing.withLock { (_) throws(StoreError) -> Int in
            guard plaintextOffset < length else { return 0 }
            let left = Int(min(UInt64(count), length - plaintextOffset))
            let run = Int((plaintextOffset + UInt64(left) - 1) / chunkSize - first) + 1
            let seen = isCached ? changes.value : nil
            guard try tryRun(first, run, skipped, destination.slice(..<left), seen, workspace) else {
                throw .damaged("chunk \(first): the file ends early")
            }
            return left
        }
    }

    /// Tries once to read a run. Returns false if a record did not verify or the file ended, and a writer may be the
    /// cause, and if the file was cut meanwhile.
    /// - Parameter seen: the change counter when the try began, to fill the cache. Nil bypasses it.
    private func tryRun(
        _ first: UInt64, _ run: Int, _ skipped: Int, _ destination: UnsafeMutableRawBufferPointer, _ seen: UInt64?,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let (started, cuts) = (changes.value, self.records.cuts.value)
        let length = self.length
        let lastSize = layout.plaintextSize(ofChunk: first + UInt64(run - 1), length: length)
        guard lastSize > 0, skipped + destination.count <= (run - 1) * layout.chunkSize + lastSize else { return false }
        let size = (run - 1) * layout.recordSize + lastSize + ChunkLayout.recordOverhead
        let records = workspace.records.slice(..<size)
        if try self.records.read(first, into: records) < size && !isLogged,
            changes.value != started || ChangeCounter.isChanging(started)
        {
            return false
        }
        var position = 0
        var chunk = first
        var recordStart = 0
        while position < destination.count {
            let from = chunk == first ? skipped : 0
            let whole = from == 0 ? (destination.count - position) / layout.chunkSize : 0
            // A chunk of which only a part is wanted, or the file's last and shorter one, is decrypted beside.
            let size =
                whole > 0 ? whole * layout.chunkSize : layout.plaintextSize(ofChunk: chunk, length: length)
            let wanted = min(size - from, destination.count - position)
            guard wanted > 0 else { return false }
            let into = whole > 0 ? destination.slice(position..<(position + size)) : workspace.edge.slice(..<size)
            let recordEnd = recordStart + size + max(1, whole) * ChunkLayout.recordOverhead
            let part = UnsafeRawBufferPointer(records.slice(recordStart..<recordEnd))
            guard try decryptOrSubstitute(part, first: chunk, into: into, started: started, workspace) else {
                return false
            }
            if let seen { remember(chunk, UnsafeRawBufferPointer(into), seen) }
            if whole == 0 {
                destination.slice(position..<(position + wanted))
                    .copyMemory(from: UnsafeRawBufferPointer(into.slice(from..<(from + wanted))))
            }
            position += wanted
            chunk += UInt64(max(1, whole))
            recordStart = recordEnd
        }
        // Else it may have read a record in place that had been replaced long before.
        return self.records.cuts.value == cuts && !ChangeCounter.isChanging(cuts)
    }

    private func remember(_ first: UInt64, _ plaintext: UnsafeRawBufferPointer, _ seen: UInt64) {
        var start = 0
        var chunk = first
        while start < plaintext.count {
            let end = min(start + layout.chunkSize, plaintext.count)
            store.cache.insert(file: token, chunk: chunk, plaintext.slice(start..<end), seen: seen, changes: changes)
            start = end
            chunk += 1
        }
    }

    /// Verifies and decrypts adjacent records. A record that does not verify is a hole, is being written right now,
    /// or is damaged. Returns false if a writer is running.
    func decryptOrSubstitute(
        _ records: UnsafeRawBufferPointer, first: UInt64, into plaintext: UnsafeMutableRawBufferPointer,
        started: UInt64, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let before = workspace.cipher.blocksDecrypted
        defer { store.counters.aesBlocksDecrypted.count(Int(workspace.cipher.blocksDecrypted - before)) }
        return try store.counters.cryptoTime.time { () throws(StoreError) in
            try workspace.scan(records, first: first, layout, keys.chunk, into: plaintext) {
                (chunk, record, piece) throws(StoreError) in
                try substitute(for: record, chunk: chunk, into: piece, started: started, workspace)
            }
        }
    }

    /// Decrypts the record of a chunk that fills `piece`. Returns false if it is cut short or does not verify.
    func decryptStored(
        _ chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        try records.decrypt(
            records.read(chunk, size: piece.count, workspace), first: chunk, into: piece, workspace.cipher) == 1
    }

    /// Finds the plaintext of a record that does not verify elsewhere. Returns false if a writer is running.
    private func substitute(
        for record: UnsafeRawBufferPointer, chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, started: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        if records.isSparse.load(ordering: .acquiring), record.allSatisfy({ $0 == 0 }) {
            piece.fill(with: 0)
            return true
        }
        // Under the write lock no other writer is running, and `started` is the current value.
        let now = changes.value
        if now != started || ChangeCounter.isChanging(now) { return false }
        if try decryptAsSealed(record, chunk: chunk, into: piece, workspace) { return true }
        if try decryptAsStored(chunk, into: piece, workspace) { return true }
        throw .damaged("chunk \(chunk): its data is damaged")
    }

    /// Decrypts the last chunk of the sealed length in a file that is longer. Its record is shorter than the layout of
    /// the longer file says, but it is still there.
    private func decryptAsSealed(
        _ record: UnsafeRawBufferPointer, chunk: UInt64, into piece: UnsafeMutableRawBufferPointer,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let authentic = authenticLength
        guard authentic < length, authentic / UInt64(layout.chunkSize) == chunk else { return false }
        let n = Int(authentic % UInt64(layout.chunkSize))
        guard n > 0, n <= piece.count else { return false }
        let sealed = record.slice(..<(n + ChunkLayout.recordOverhead))
        // Reads end at the sealed length, so the rest is never returned.
        piece.slice(n...).fill(with: 0)
        if records.isSparse.load(ordering: .acquiring), sealed.allSatisfy({ $0 == 0 }) {
            piece.fill(with: 0)
            return true
        }
        return try records.decrypt(sealed, first: chunk, into: piece.slice(..<n), workspace.cipher) == 1
    }

    /// Decrypts the last chunk of a file that a read-only store ends at its sealed length (FileFormat, Store-3). Its record
    /// may be the longer one that the backing size gives. No record of the batch comes after it, so this one can take
    /// the place of the first.
    private func decryptAsStored(
        _ chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let stored = lengths.stored.load(ordering: .acquiring)
        guard stored > length, layout.partialChunk(of: length) == chunk else { return false }
        let whole = workspace.edge.slice(..<layout.plaintextSize(ofChunk: chunk, length: stored))
        guard whole.count > piece.count, try decryptStored(chunk, into: whole, workspace) else { return false }
        if piece.baseAddress != whole.baseAddress {
            piece.copyMemory(from: UnsafeRawBufferPointer(whole.slice(..<piece.count)))
        }
        return true
    }

    /// Runs `body`, a read for a request, and counts it if it meets damage. Its parts and retries may meet it several times.
    @inline(__always)
    func countingDamage<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        do throws(StoreError) { return try body() } catch {
            if case .damaged = error { store.counters.damagedReads.count() }
            throw error
        }
    }
}
