internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import VaultCrypto
internal import VaultFormat

/// Reads and decrypts runs of adjacent chunks without the write lock. A record that does not verify is a hole, is being
/// written right now, or is damaged. Any thread.
struct RunReader {
    let parts: FileParts

    private var store: Store { parts.store }
    private var layout: ChunkLayout { parts.layout }

    /// Tries once to read a run. Returns false if the file was cut meanwhile. Also returns false if a record did not
    /// verify, or the file ended, and a writer may be the cause.
    /// - Parameter seen: the change counter when the try began, for filling the cache. Nil bypasses the cache.
    func tryRun(
        _ first: UInt64, _ run: Int, _ skipped: Int, _ destination: UnsafeMutableRawBufferPointer, _ seen: UInt64?,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let (started, cuts) = (parts.changes.value, parts.cuts.value)
        let length = parts.length
        let lastSize = layout.plaintextSize(ofChunk: first + UInt64(run - 1), length: length)
        guard lastSize > 0, skipped + destination.count <= (run - 1) * layout.chunkSize + lastSize else { return false }
        let size = (run - 1) * layout.recordSize + lastSize + ChunkLayout.recordOverhead
        let records = workspace.records.slice(..<size)
        if try parts.readRecords(first, into: records) < size && !parts.isLogged,
            parts.changes.value != started || ChangeCounter.isChanging(started)
        {
            return false
        }
        var position = 0
        var chunk = first
        var recordStart = 0
        while position < destination.count {
            let from = chunk == first ? skipped : 0
            let whole = from == 0 ? (destination.count - position) / layout.chunkSize : 0
            // Decrypt a partly wanted chunk, or the file's shorter last one, into a buffer of its own.
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
        // After a cut the log forgets records, so this may have read one in place that was replaced long before.
        return parts.cuts.value == cuts && !ChangeCounter.isChanging(cuts)
    }

    private func remember(_ first: UInt64, _ plaintext: UnsafeRawBufferPointer, _ seen: UInt64) {
        var start = 0
        var chunk = first
        while start < plaintext.count {
            let end = min(start + layout.chunkSize, plaintext.count)
            store.cache.insert(
                file: parts.token, chunk: chunk, plaintext.slice(start..<end), seen: seen, changes: parts.changes)
            start = end
            chunk += 1
        }
    }

    /// Verifies and decrypts adjacent records. Looks elsewhere for the plaintext of a record that does not verify.
    /// Returns false if a writer is running.
    func decryptOrSubstitute(
        _ records: UnsafeRawBufferPointer, first: UInt64, into plaintext: UnsafeMutableRawBufferPointer,
        started: UInt64, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let before = workspace.cipher.blocksDecrypted
        defer { store.counters.aesBlocksDecrypted.count(Int(workspace.cipher.blocksDecrypted - before)) }
        return try store.counters.cryptoTime.time { () throws(StoreError) in
            try workspace.scan(records, first: first, layout, parts.keys.chunk, into: plaintext) {
                (chunk, record, piece) throws(StoreError) in
                try substitute(for: record, chunk: chunk, into: piece, started: started, workspace)
            }
        }
    }

    /// Decrypts a chunk's record into `piece`, of the chunk's size. Returns false if it is cut short or does not
    /// verify.
    func decryptStored(
        _ chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        try parts.decrypt(
            parts.readRecord(chunk, size: piece.count, workspace), first: chunk, into: piece, workspace.cipher) == 1
    }

    /// Finds the plaintext of an unverified record elsewhere. Returns false if a writer is running.
    private func substitute(
        for record: UnsafeRawBufferPointer, chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, started: UInt64,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        if parts.isSparse.load(ordering: .acquiring), record.allSatisfy({ $0 == 0 }) {
            piece.fill(with: 0)
            return true
        }
        // Under the write lock no other writer is running, and `started` is the current value.
        let now = parts.changes.value
        if now != started || ChangeCounter.isChanging(now) { return false }
        if try decryptAsSealed(record, chunk: chunk, into: piece, workspace) { return true }
        if try decryptAsStored(chunk, into: piece, workspace) { return true }
        throw .damaged("chunk \(chunk): its data is damaged")
    }

    /// Decrypts the last chunk of the sealed length in a longer file. Its record is shorter than in the longer layout.
    private func decryptAsSealed(
        _ record: UnsafeRawBufferPointer, chunk: UInt64, into piece: UnsafeMutableRawBufferPointer,
        _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let authentic = parts.authenticLength
        guard authentic < parts.length, authentic / UInt64(layout.chunkSize) == chunk else { return false }
        let n = Int(authentic % UInt64(layout.chunkSize))
        guard n > 0, n <= piece.count else { return false }
        let sealed = record.slice(..<(n + ChunkLayout.recordOverhead))
        // Reads end at the sealed length, so the rest is never returned.
        piece.slice(n...).fill(with: 0)
        if parts.isSparse.load(ordering: .acquiring), sealed.allSatisfy({ $0 == 0 }) {
            piece.fill(with: 0)
            return true
        }
        return try parts.decrypt(sealed, first: chunk, into: piece.slice(..<n), workspace.cipher) == 1
    }

    /// Decrypts the last chunk of a file that a read-only store ends at its sealed length (FileFormat, Store-3). Its
    /// record may be the longer one of the backing size. Reading it overwrites the batch's first record, which does no
    /// harm because this one is the batch's last.
    private func decryptAsStored(
        _ chunk: UInt64, into piece: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) -> Bool {
        let stored = parts.storedLength.load(ordering: .acquiring)
        guard stored > parts.length, layout.partialChunk(of: parts.length) == chunk else { return false }
        let whole = workspace.edge.slice(..<layout.plaintextSize(ofChunk: chunk, length: stored))
        guard whole.count > piece.count, try decryptStored(chunk, into: whole, workspace) else { return false }
        if piece.baseAddress != whole.baseAddress {
            piece.copyMemory(from: UnsafeRawBufferPointer(whole.slice(..<piece.count)))
        }
        return true
    }

    /// Reads the first bytes of one chunk, from the block cache if it has them. The caller has the write lock.
    func readStart(
        ofChunk chunk: UInt64, into plaintext: UnsafeMutableRawBufferPointer, _ workspace: Workspace
    ) throws(StoreError) {
        guard let base = plaintext.baseAddress else { return }
        if store.cache.copy(file: parts.token, chunk: chunk, range: 0..<plaintext.count, to: base) {
            store.counters.cacheHits.count()
            return
        }
        store.counters.cacheMisses.count()
        let n = layout.plaintextSize(ofChunk: chunk, length: parts.length)
        let record = try parts.readRecord(chunk, size: n, workspace)
        let edge = workspace.edge.slice(..<n)
        try parts.countingDamage { () throws(StoreError) in
            guard
                try decryptOrSubstitute(record, first: chunk, into: edge, started: parts.changes.value, workspace)
            else { throw .damaged("chunk \(chunk): its data is damaged") }
        }
        plaintext.copyMemory(from: UnsafeRawBufferPointer(edge.slice(..<plaintext.count)))
    }
}
