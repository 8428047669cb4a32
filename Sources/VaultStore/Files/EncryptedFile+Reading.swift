internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Requests of more chunks than this stream by the block cache: they would only push out what random reads use.
    private static let largestCachedRun = 16
    /// How often a record that does not verify is read again while writers are at work, before they are held off.
    private static let patience = 3

    /// Reads plaintext; returns the bytes read, fewer than asked for only at the end of the file.
    /// - Throws: `.damaged` where a chunk of the range does not verify.
    package func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: Workspace
    ) throws(StoreError) -> Int {
        store.followsWriter
            ? try readFollowing(at: plaintextOffset, into: buffer, workspace: workspace)
            : try readKnown(at: plaintextOffset, into: buffer, workspace: workspace)
    }

    /// Reads by the length that is known.
    func readKnown(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, workspace: Workspace
    ) throws(StoreError) -> Int {
        let length = self.length
        let vouched = currentAuthenticLength.load(ordering: .acquiring)
        guard plaintextOffset < length, buffer.count > 0 else { return 0 }
        if plaintextOffset >= vouched {
            throw damaged("length: sealed at \(vouched) bytes, read at \(plaintextOffset)")
        }
        let count = Int(min(UInt64(buffer.count), min(length, vouched) - plaintextOffset))
        let wanted = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
        let chunkSize = UInt64(layout.chunkSize)
        let chunks = Int((plaintextOffset + UInt64(count) - 1) / chunkSize - plaintextOffset / chunkSize) + 1
        // What another machine writes is read anew each time.
        let isCached = chunks <= Self.largestCachedRun && !store.followsWriter
        var done = 0
        while done < count {
            let offset = plaintextOffset + UInt64(done)
            let rest = UnsafeMutableRawBufferPointer(rebasing: wanted[done...])
            if isCached, let hit = readFromCache(at: offset, into: rest) {
                done += hit
            } else {
                let read = try readRun(at: offset, into: rest, isCached: isCached, workspace: workspace)
                // The file has been cut while it was read.
                if read == 0 { return done }
                done += read
            }
        }
        return count
    }

    /// What the block cache has of the chunk at this offset, as far as it is wanted.
    private func readFromCache(at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer) -> Int? {
        let chunkSize = layout.chunkSize
        let start = Int(plaintextOffset % UInt64(chunkSize))
        let count = min(chunkSize - start, wanted.count)
        guard let destination = wanted.baseAddress,
            store.cache.copy(
                file: token, chunk: plaintextOffset / UInt64(chunkSize), range: start..<(start + count),
                to: destination)
        else { return nil }
        store.counters.cacheHits.count()
        return count
    }

    /// Reads a run of adjacent chunks that are not cached with one pread(2), at most one batch; returns how many of
    /// the wanted bytes it has filled.
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
        let destination = UnsafeMutableRawBufferPointer(rebasing: wanted[..<count])
        if isCached { store.counters.cacheMisses.count(run) }
        for _ in 0..<Self.patience {
            let seen = changes.value
            if try openRun(first, run, skipped, destination, isCached ? seen : nil, workspace) { return count }
            // A writer at work explains it; nobody at work, and it is damage.
            if changes.value == seen && !ChangeCounter.isChanging(seen) { break }
        }
        return try writing.withLock { (_) throws(StoreError) -> Int in
            guard plaintextOffset < length else { return 0 }
            let left = Int(min(UInt64(count), length - plaintextOffset))
            let destination = UnsafeMutableRawBufferPointer(rebasing: destination[..<left])
            let run = Int((plaintextOffset + UInt64(left) - 1) / chunkSize - first) + 1
            guard try openRun(first, run, skipped, destination, isCached ? changes.value : nil, workspace) else {
                throw damaged("chunk \(first): the file ends early")
            }
            return left
        }
    }

    /// One try at a run. False where a record did not verify or the file ended, and a writer may be why.
    /// - Parameter seen: the change counter when the try began, to fill the cache; nil keeps out of it.
    private func openRun(
        _ first: UInt64, _ run: Int, _ skipped: Int, _ destination: UnsafeMutableRawBufferPointer, _ seen: UInt64?,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let started = changes.value
        let length = self.length
        let lastSize = layout.plaintextSize(ofChunk: first + UInt64(run - 1), length: length)
        guard lastSize > 0, skipped + destination.count <= (run - 1) * layout.chunkSize + lastSize else { return false }
        let size = (run - 1) * layout.recordSize + lastSize + ChunkLayout.recordOverhead
        let records = UnsafeMutableRawBufferPointer(rebasing: workspace.records[..<size])
        let had = try store.counters.storeTime.time { () throws(StoreError) in
            try reader.read(at: layout.recordOffset(ofChunk: first), into: records)
        }
        store.counters.ciphertextBytesRead.count(had)
        if had < size {
            if changes.value != started || ChangeCounter.isChanging(started) { return false }
            fillMissing(records, from: had)
        }
        var position = 0
        var chunk = first
        var recordStart = 0
        while position < destination.count {
            let from = chunk == first ? skipped : 0
            let whole = wholeChunks(from: from, left: destination.count - position)
            if whole > 0 {
                let into = UnsafeMutableRawBufferPointer(
                    rebasing: destination[position..<(position + whole * layout.chunkSize)])
                let part = UnsafeRawBufferPointer(
                    rebasing: records[recordStart..<(recordStart + whole * layout.recordSize)])
                guard try open(part, first: chunk, into: into, started: started, workspace) else { return false }
                if let seen { remember(chunk, UnsafeRawBufferPointer(into), seen) }
                position += into.count
                chunk += UInt64(whole)
                recordStart += part.count
            } else {
                // Only a part of this chunk is wanted, or it is the file's last and shorter.
                let n = layout.plaintextSize(ofChunk: chunk, length: length)
                let edge = UnsafeMutableRawBufferPointer(rebasing: workspace.edge[..<n])
                let part = UnsafeRawBufferPointer(
                    rebasing: records[recordStart..<(recordStart + n + ChunkLayout.recordOverhead)])
                let wanted = min(n - from, destination.count - position)
                guard wanted > 0 else { return false }
                guard try open(part, first: chunk, into: edge, started: started, workspace) else { return false }
                if let seen { remember(chunk, UnsafeRawBufferPointer(edge), seen) }
                UnsafeMutableRawBufferPointer(rebasing: destination[position..<(position + wanted)])
                    .copyMemory(from: UnsafeRawBufferPointer(rebasing: edge[from..<(from + wanted)]))
                position += wanted
                chunk += 1
                recordStart += part.count
            }
        }
        return true
    }

    /// The file ends early: what is missing must neither verify nor pass for a hole. The journal may have it, where a
    /// slot that could not be put in place sets the end.
    func fillMissing(_ records: UnsafeMutableRawBufferPointer, from had: Int) {
        UnsafeMutableRawBufferPointer(rebasing: records[had...]).initializeMemory(as: UInt8.self, repeating: 0xFF)
    }

    private func wholeChunks(from: Int, left: Int) -> Int {
        from == 0 ? left / layout.chunkSize : 0
    }

    private func remember(_ first: UInt64, _ plaintext: UnsafeRawBufferPointer, _ seen: UInt64) {
        var start = 0
        var chunk = first
        while start < plaintext.count {
            let end = min(start + layout.chunkSize, plaintext.count)
            store.cache.insert(
                file: token, chunk: chunk, UnsafeRawBufferPointer(rebasing: plaintext[start..<end]), seen: seen,
                changes: changes)
            start = end
            chunk += 1
        }
    }

    /// Verifies and decrypts contiguous records; what does not verify is a hole, in the journal, being written right
    /// now (false), or damaged.
    func open(
        _ records: UnsafeRawBufferPointer, first: UInt64, into plaintext: UnsafeMutableRawBufferPointer,
        started: UInt64, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let before = workspace.cipher.blocksDecrypted
        defer { store.counters.aesBlocksDecrypted.count(Int(workspace.cipher.blocksDecrypted - before)) }
        var chunk = first
        var recordStart = 0
        var start = 0
        while start < plaintext.count {
            let rest = UnsafeMutableRawBufferPointer(rebasing: plaintext[start...])
            let good: Int
            do {
                good = try store.counters.cryptoTime.time { () throws(CryptoError) in
                    try workspace.cipher.open(
                        UnsafeRawBufferPointer(rebasing: records[recordStart...]), firstChunkIndex: chunk,
                        chunkSize: layout.chunkSize, keys: keys.chunk, into: rest)
                }
            } catch { throw StoreError(error) }
            chunk += UInt64(good)
            recordStart += good * layout.recordSize
            start += good * layout.chunkSize
            guard start < plaintext.count else { break }
            let end = min(start + layout.chunkSize, plaintext.count)
            let piece = UnsafeMutableRawBufferPointer(rebasing: plaintext[start..<end])
            let recordEnd = recordStart + piece.count + ChunkLayout.recordOverhead
            let record = UnsafeRawBufferPointer(rebasing: records[recordStart..<recordEnd])
            guard try substitute(for: record, chunk: chunk, into: piece, started: started, workspace) else {
                return false
            }
            chunk += 1
            recordStart = recordEnd
            start = end
        }
        return true
    }

    /// Fills in for a record that does not verify.
    private func substitute(
        for record: UnsafeRawBufferPointer, chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, started: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        if isSparse.load(ordering: .acquiring), record.allSatisfy({ $0 == 0 }) {
            piece.initializeMemory(as: UInt8.self, repeating: 0)
            return true
        }
        let now = changes.value
        if now != started || ChangeCounter.isChanging(now) {
            // Under the write lock (then `started` is what it is now) nobody is at work, whatever the count says.
            return false
        }
        if try openFromJournal(chunk: chunk, into: piece, workspace) { return true }
        if try openAsSealed(record, chunk: chunk, into: piece, workspace) { return true }
        throw damaged("chunk \(chunk): tag does not verify")
    }

    /// The last chunk that a sealed header vouches for, where bytes were put behind it and it is no longer laid out as
    /// the last: its record is still there, and its tag tells.
    private func openAsSealed(
        _ record: UnsafeRawBufferPointer, chunk: UInt64, into piece: UnsafeMutableRawBufferPointer,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let vouched = currentAuthenticLength.load(ordering: .acquiring)
        guard vouched < length, vouched / UInt64(layout.chunkSize) == chunk else { return false }
        let n = Int(vouched % UInt64(layout.chunkSize))
        guard n > 0, n <= piece.count else { return false }
        do {
            let opened = try workspace.cipher.open(
                UnsafeRawBufferPointer(rebasing: record[..<(n + ChunkLayout.recordOverhead)]), firstChunkIndex: chunk,
                chunkSize: layout.chunkSize, keys: keys.chunk,
                into: UnsafeMutableRawBufferPointer(rebasing: piece[..<n]))
            // Past `n` nothing is given out: reads end at the vouched length.
            UnsafeMutableRawBufferPointer(rebasing: piece[n...]).initializeMemory(as: UInt8.self, repeating: 0)
            return opened == 1
        } catch { throw StoreError(error) }
    }

    /// Counts and describes damage.
    func damaged(_ reason: String) -> StoreError {
        if !store.followsWriter { store.counters.damagedReads.count() }
        return .damaged(reason)
    }
}
