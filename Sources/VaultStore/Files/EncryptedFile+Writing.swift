internal import CLinux
internal import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultCrypto
internal import VaultFormat

extension EncryptedFile {
    /// Writes plaintext. Returns the number of bytes written, which is less than given only if the store took no more.
    /// After a crash every chunk is either old or new: a record is replaced only after its new bytes are in the journal.
    package func write(
        _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64, workspace: Workspace
    ) throws(StoreError) -> Int {
        let (end, overflow) = plaintextOffset.addingReportingOverflow(UInt64(data.count))
        // The backing file's offsets must fit off_t.
        guard !overflow, end <= Self.largestLength else { throw .system(.fileTooLarge) }
        return try writing.withLock { (state) throws(StoreError) -> Int in
            let writer = try writer(&state)
            let oldLength = length
            if plaintextOffset > oldLength { try extend(&state, writer, to: plaintextOffset, workspace) }
            do throws(StoreError) {
                return try writeChunks(&state, writer, data, at: plaintextOffset, workspace)
            } catch {
                // Nothing was written, so the gap before it is removed again.
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

    /// Writes the leading part of `data` that lies in one batch of chunks. Returns its size.
    private func writeBatch(
        _ state: inout WriteState, _ writer: Descriptor, _ data: UnsafeRawBufferPointer, at plaintextOffset: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = UInt64(layout.chunkSize)
        let oldLength = length
        let first = plaintextOffset / chunkSize
        // Only existing records need slots.
        let isReplacing = first < layout.chunkCount(ofLength: oldLength)
        let limit = isReplacing ? min(workspace.batchChunks, try store.journal.batchLimit()) : workspace.batchChunks
        let regionStart = first * chunkSize
        let dataEnd = min(plaintextOffset + UInt64(data.count), regionStart + UInt64(limit) * chunkSize)
        let chunks = Int((dataEnd - 1) / chunkSize - first) + 1
        let newLength = max(oldLength, dataEnd)
        let regionEnd = min(regionStart + UInt64(chunks) * chunkSize, newLength)
        let given = data.slice(..<Int(dataEnd - plaintextOffset))

        let isWhole = plaintextOffset == regionStart && dataEnd == regionEnd
        let plaintext =
            isWhole
            ? given
            : try assemble(given, at: plaintextOffset, region: regionStart..<regionEnd, oldLength: oldLength, workspace)
        let records = try encrypt(plaintext, first: first, chunks: chunks, workspace)
        let existing = Int(min(UInt64(chunks), max(first, layout.chunkCount(ofLength: oldLength)) - first))
        let slots = try journal(&state, writer, records, first: first, existing: existing)
        try changes.during { () throws(StoreError) in
            try put(&state, writer, records, first: first, existing: existing, slots: slots, newLength: newLength)
            for index in 0..<chunks {
                let chunk = first + UInt64(index)
                if isWhole {
                    store.cache.remove(file: token, chunk: chunk)
                } else {
                    let start = index * layout.chunkSize
                    let end = min(start + layout.chunkSize, plaintext.count)
                    store.cache.update(file: token, chunk: chunk, plaintext.slice(start..<end))
                }
            }
        }
        return given.count
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

    /// Fills a chunk's part of the assembly with the file's content and zeros behind it.
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
        let stored = try store.counters.storeTime.time { () throws(StoreError) in
            try reader.read(at: layout.recordOffset(ofChunk: chunk), into: record)
        }
        store.counters.ciphertextBytesRead.count(stored)
        if stored < record.count { fillMissing(record, from: stored) }
        let edge = workspace.edge.slice(..<n)
        guard try open(UnsafeRawBufferPointer(record), first: chunk, into: edge, started: changes.value, workspace)
        else { throw damaged("chunk \(chunk): tag does not verify") }
        plaintext.copyMemory(from: UnsafeRawBufferPointer(edge.slice(..<plaintext.count)))
    }

    /// Encrypts a batch into the workspace.
    func encrypt(
        _ plaintext: UnsafeRawBufferPointer, first: UInt64, chunks: Int, _ workspace: Workspace
    ) throws(StoreError) -> UnsafeRawBufferPointer {
        let records = workspace.records.slice(..<(plaintext.count + chunks * ChunkLayout.recordOverhead))
        do throws(CryptoError) {
            try store.counters.cryptoTime.time { () throws(CryptoError) in
                try workspace.cipher.encrypt(
                    plaintext, firstChunkIndex: first, chunkSize: layout.chunkSize, keys: keys.chunk, into: records)
            }
        } catch { throw StoreError(error) }
        return UnsafeRawBufferPointer(records)
    }

    /// Writes the first `existing` records of a batch, which replace others, to the journal. Returns their slots.
    private func journal(
        _ state: inout WriteState, _ writer: Descriptor, _ records: UnsafeRawBufferPointer, first: UInt64, existing: Int
    ) throws(StoreError) -> UInt64 {
        if existing == 0 { return 0 }
        let replacing = records.slice(..<min(records.count, existing * layout.recordSize))
        return try store.counters.storeTime.time { () throws(StoreError) in
            if state.header.isSparse {
                try allocate(writer, start: layout.recordOffset(ofChunk: first), count: replacing.count)
            }
            return try store.journal.write(
                fileID: fileID, firstChunk: first, records: replacing, recordSize: layout.recordSize, count: existing)
        }
    }

    /// Puts a batch's records in place, sets the new length and frees the slots.
    private func put(
        _ state: inout WriteState, _ writer: Descriptor, _ records: UnsafeRawBufferPointer, first: UInt64,
        existing: Int, slots: UInt64, newLength: UInt64
    ) throws(StoreError) {
        let start = layout.recordOffset(ofChunk: first)
        let oldEnd = layout.backingSize(ofPlaintextLength: length)
        let replaced = min(records.count, existing * layout.recordSize)
        // The part whose space is allocated. Never a part of a new record, which is not in the journal: a daemon killed
        // between the two writes must not leave half of it.
        let allocatedEnd = (oldEnd + store.blockSize - 1) / store.blockSize * store.blockSize
        let inPlace = allocatedEnd <= start ? 0 : Int(min(allocatedEnd - start, UInt64(replaced)))
        try store.counters.storeTime.time { () throws(StoreError) in
            do throws(StoreError) {
                // First the part that needs new space, so that a full disk is noticed before existing records change.
                if inPlace < records.count { try writer.write(records.slice(inPlace...), at: start + UInt64(inPlace)) }
            } catch {
                // Only bytes past the old end were written. They are removed again.
                _ = try? writer.truncate(to: oldEnd)
                store.journal.release(slots)
                throw error
            }
            setLength(&state, newLength)
            do throws(StoreError) {
                if inPlace > 0 { try writer.write(records.slice(..<inPlace), at: start) }
            } catch {
                store.journal.keep(
                    slots, fileID: fileID, firstChunk: first, recordSize: layout.recordSize, totalSize: replaced)
                for chunk in 0..<UInt64(max(existing, 1)) { store.cache.remove(file: token, chunk: first + chunk) }
                throw error
            }
            store.counters.ciphertextBytesWritten.count(records.count)
            store.journal.release(slots)
        }
    }

    /// Makes sure that records which are holes now have space. KEEP_SIZE: the length stays.
    private func allocate(_ writer: Descriptor, start: UInt64, count: Int) throws(StoreError) {
        if linux_fallocate(writer.fd, linux_FALLOC_FL_KEEP_SIZE, Int64(start), Int64(count)) == 0 { return }
        let error = currentErrno()
        // A store without fallocate(2) cannot promise space. The journal then keeps the chunk whole.
        if error == .noSpace || error == .init(rawValue: EDQUOT) { throw .system(error) }
    }

    /// Sets a new length. The caller holds the write lock.
    func setLength(_ state: inout WriteState, _ newLength: UInt64) {
        if newLength == length { return }
        currentLength.store(newLength, ordering: .releasing)
        state.lengthChanges += 1
    }
}
