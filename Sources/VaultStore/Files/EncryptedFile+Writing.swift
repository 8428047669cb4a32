internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Writes plaintext; returns the bytes written, fewer than given only where the store took no more.
    /// Every chunk is old or new whatever happens: a record is replaced only after its new bytes are in the journal.
    package func write(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, workspace: Workspace
    ) throws(StoreError) -> Int {
        let (end, overflow) = plaintextOffset.addingReportingOverflow(UInt64(data.count))
        // The backing file's offsets have to fit off_t.
        guard !overflow, end <= Self.largestLength else { throw .system(.fileTooLarge) }
        return try writing.withLock { (state) throws(StoreError) -> Int in
            let writer = try writer(&state)
            let oldLength = length
            if plaintextOffset > oldLength { try extend(&state, writer, to: plaintextOffset, workspace) }
            do throws(StoreError) {
                return try writeChunks(&state, writer, data, at: plaintextOffset, workspace)
            } catch {
                // Nothing was written: the gap before it goes again.
                if plaintextOffset > oldLength { try? shrink(&state, writer, to: oldLength, workspace) }
                throw error
            }
        }
    }

    /// Writes at or before the end, batch by batch.
    func writeChunks(
        _ state: inout WriteState, _ writer: Descriptor, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Int {
        if plaintextOffset + UInt64(data.count) > length { try unseal(&state, writer) }
        var done = 0
        while done < data.count {
            do {
                done += try writeBatch(
                    &state, writer, UnsafeRawBufferPointer(rebasing: data[done...]), at: plaintextOffset + UInt64(done),
                    workspace)
            } catch {
                if done > 0 { return done }
                throw error
            }
        }
        return done
    }

    /// Writes the leading part of `data` that lies in one batch of chunks; returns its size.
    private func writeBatch(
        _ state: inout WriteState, _ writer: Descriptor, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = UInt64(layout.chunkSize)
        let oldLength = length
        let first = plaintextOffset / chunkSize
        // Only records that are there already need slots.
        let isReplacing = first < layout.chunkCount(ofLength: oldLength)
        let limit = isReplacing ? min(workspace.batchChunks, try store.journal.batchLimit()) : workspace.batchChunks
        let regionStart = first * chunkSize
        let dataEnd = min(plaintextOffset + UInt64(data.count), regionStart + UInt64(limit) * chunkSize)
        let chunks = Int((dataEnd - 1) / chunkSize - first) + 1
        let newLength = max(oldLength, dataEnd)
        let regionEnd = min(regionStart + UInt64(chunks) * chunkSize, newLength)
        let count = Int(dataEnd - plaintextOffset)
        let given = UnsafeRawBufferPointer(rebasing: data[..<count])

        let isWhole = plaintextOffset == regionStart && dataEnd == regionEnd
        let plaintext: UnsafeRawBufferPointer
        if isWhole {
            plaintext = given
        } else {
            plaintext = try assemble(
                given, at: plaintextOffset, region: regionStart..<regionEnd, oldLength: oldLength, workspace)
        }
        let records = try seal(plaintext, first: first, chunks: chunks, workspace)
        let existing = Int(min(UInt64(chunks), max(first, layout.chunkCount(ofLength: oldLength)) - first))
        try store.counters.storeTime.time { () throws(StoreError) in
            try replace(
                &state, writer, records, first: first, existing: existing, newLength: newLength)
        }
        for chunk in 0..<chunks {
            let start = chunk * layout.chunkSize
            let part = UnsafeRawBufferPointer(
                rebasing: plaintext[start..<min(start + layout.chunkSize, plaintext.count)])
            if isWhole {
                store.cache.remove(file: token, chunk: first + UInt64(chunk))
            } else {
                store.cache.update(file: token, chunk: first + UInt64(chunk), part)
            }
        }
        changes.endChange()
        return count
    }

    /// The batch's plaintext where the data covers its first or last chunk only in part: the rest as it is on disk.
    private func assemble(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, region: Range<UInt64>, oldLength: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> UnsafeRawBufferPointer {
        let chunkSize = UInt64(layout.chunkSize)
        let size = Int(region.upperBound - region.lowerBound)
        let assembled = UnsafeMutableRawBufferPointer(rebasing: workspace.assembly[..<size])
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
        UnsafeMutableRawBufferPointer(rebasing: assembled[start..<(start + data.count)]).copyMemory(from: data)
        return UnsafeRawBufferPointer(assembled)
    }

    /// Fills a chunk's place in the assembly with what the file has of it, and zeros.
    private func loadChunk(
        _ chunk: UInt64, into assembled: UnsafeMutableRawBufferPointer, at start: Int, _ workspace: Workspace
    ) throws(StoreError) {
        let place = UnsafeMutableRawBufferPointer(
            rebasing: assembled[start..<min(start + layout.chunkSize, assembled.count)])
        let had = layout.plaintextSize(ofChunk: chunk, length: length)
        let filled = min(had, place.count)
        if filled > 0 {
            try readChunk(chunk, into: UnsafeMutableRawBufferPointer(rebasing: place[..<filled]), workspace)
        }
        UnsafeMutableRawBufferPointer(rebasing: place[filled...]).initializeMemory(as: UInt8.self, repeating: 0)
    }

    /// The first bytes of one chunk. The caller holds the write lock.
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
        let record = UnsafeMutableRawBufferPointer(rebasing: workspace.records[..<(n + ChunkLayout.recordOverhead)])
        let had = try store.counters.storeTime.time { () throws(StoreError) in
            try reader.read(at: layout.recordOffset(ofChunk: chunk), into: record)
        }
        store.counters.ciphertextBytesRead.count(had)
        if had < record.count { fillMissing(record, from: had) }
        let edge = UnsafeMutableRawBufferPointer(rebasing: workspace.edge[..<n])
        guard
            try open(
                UnsafeRawBufferPointer(record), first: chunk, into: edge, started: changes.value, workspace)
        else { throw damaged("chunk \(chunk): tag does not verify") }
        plaintext.copyMemory(from: UnsafeRawBufferPointer(rebasing: edge[..<plaintext.count]))
    }

    /// Encrypts a batch into the workspace.
    func seal(
        _ plaintext: UnsafeRawBufferPointer, first: UInt64, chunks: Int, _ workspace: Workspace
    ) throws(StoreError) -> UnsafeRawBufferPointer {
        let size = plaintext.count + chunks * ChunkLayout.recordOverhead
        let records = UnsafeMutableRawBufferPointer(rebasing: workspace.records[..<size])
        do {
            try store.counters.cryptoTime.time { () throws(CryptoError) in
                try workspace.cipher.seal(
                    plaintext, firstChunkIndex: first, chunkSize: layout.chunkSize, keys: keys.chunk, into: records)
            }
        } catch { throw StoreError(error) }
        return UnsafeRawBufferPointer(records)
    }

    /// Puts records in place, through the journal where they replace others, and sets the new length. On success the
    /// change is left open (`changes` odd): the caller brings the cache up to date and ends it.
    private func replace(
        _ state: inout WriteState, _ writer: Descriptor, _ records: UnsafeRawBufferPointer, first: UInt64,
        existing: Int, newLength: UInt64
    ) throws(StoreError) {
        let start = layout.recordOffset(ofChunk: first)
        let oldLength = length
        let oldEnd = layout.backingSize(ofPlaintextLength: oldLength)
        let replacing = UnsafeRawBufferPointer(rebasing: records[..<min(records.count, existing * layout.recordSize)])
        var slots: UInt64 = 0
        if existing > 0 {
            if state.header.isSparse { try allocate(writer, start: start, count: replacing.count) }
            slots = try store.journal.write(
                fileID: fileID, firstChunk: first, records: replacing, recordSize: layout.recordSize, count: existing)
        }
        changes.beginChange()
        do {
            try growFirst(writer, records, start: start, oldEnd: oldEnd, replaced: replacing.count)
        } catch {
            // What was there is untouched: only bytes past its end were written, and they go again.
            _ = try? writer.truncate(to: oldEnd)
            store.journal.release(slots)
            changes.endChange()
            throw error
        }
        setLength(&state, newLength)
        do {
            try putInPlace(writer, records, start: start, oldEnd: oldEnd, replaced: replacing.count)
        } catch {
            store.journal.keep(
                slots, fileID: fileID, firstChunk: first, recordSize: layout.recordSize, totalSize: replacing.count)
            for chunk in 0..<UInt64(max(existing, 1)) { store.cache.remove(file: token, chunk: first + chunk) }
            changes.endChange()
            throw error
        }
        store.counters.ciphertextBytesWritten.count(records.count)
        store.journal.release(slots)
    }

    /// Where the batch needs new space: writes first all of the new records, and what of the replaced ones lies past the
    /// file's last allocated block, so that a full disk is met before anything that is there is touched.
    private func growFirst(
        _ writer: Descriptor, _ records: UnsafeRawBufferPointer, start: UInt64, oldEnd: UInt64, replaced: Int
    ) throws(StoreError) {
        let from = inPlaceSize(start: start, oldEnd: oldEnd, replaced: replaced)
        if from < records.count {
            try writer.write(UnsafeRawBufferPointer(rebasing: records[from...]), at: start + UInt64(from))
        }
    }

    /// The rest, in place, where there is space for it.
    private func putInPlace(
        _ writer: Descriptor, _ records: UnsafeRawBufferPointer, start: UInt64, oldEnd: UInt64, replaced: Int
    ) throws(StoreError) {
        let size = inPlaceSize(start: start, oldEnd: oldEnd, replaced: replaced)
        if size > 0 { try writer.write(UnsafeRawBufferPointer(rebasing: records[..<size]), at: start) }
    }

    /// How much of a batch goes where space is allocated. Never a part of a record that is new: it is not in the
    /// journal, and a daemon killed between the two writes must not leave half of it.
    private func inPlaceSize(start: UInt64, oldEnd: UInt64, replaced: Int) -> Int {
        let allocatedEnd = (oldEnd + store.blockSize - 1) / store.blockSize * store.blockSize
        return allocatedEnd <= start ? 0 : Int(min(allocatedEnd - start, UInt64(replaced)))
    }

    /// Makes sure that records which are holes now have space (KEEP_SIZE: the length is not touched).
    private func allocate(_ writer: Descriptor, start: UInt64, count: Int) throws(StoreError) {
        if linux_fallocate(writer.fd, linux_FALLOC_FL_KEEP_SIZE, Int64(start), Int64(count)) == 0 { return }
        let error = currentErrno()
        // A store without fallocate(2) has no way to promise space; the journal then keeps the chunk whole.
        if error == .noSpace || error == .init(rawValue: EDQUOT) { throw .system(error) }
    }

    /// Notes a new length. The caller holds the write lock.
    func setLength(_ state: inout WriteState, _ newLength: UInt64) {
        if newLength == length { return }
        currentLength.store(newLength, ordering: .releasing)
        state.lengthChanges += 1
    }
}
