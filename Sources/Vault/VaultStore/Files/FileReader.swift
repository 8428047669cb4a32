internal import FileSystem
internal import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// Reads plaintext for requests. If a record does not verify while a writer is running, reads it again. A read takes
/// the write lock only after writers have disturbed it several times in succession.
struct FileReader {
    let file: EncryptedFile

    private var parts: FileParts { file.parts }
    private var store: Store { parts.store }
    private var layout: ChunkLayout { parts.layout }
    private var runs: RunReader { RunReader(parts: parts) }

    /// Maximum number of chunks of a request in the block cache. Larger ones would only replace what random reads use.
    private static let largestCachedRun = 16
    /// Number of attempts to read a run while writers are running, before writers are locked out.
    private static let maximumRetries = 3

    /// Does `EncryptedFile.readAhead`.
    func readAhead(at plaintextOffset: UInt64, _ workspace: Workspace) throws(StoreError) -> UInt64 {
        let length = min(parts.length, parts.authenticLength)
        guard plaintextOffset < length else { return .max }
        let first = layout.chunkIndex(ofPlaintextOffset: plaintextOffset)
        let start = layout.plaintextOffset(ofChunk: first)
        if store.cache.contains(file: parts.token, chunk: first) {
            return min(length, start + UInt64(layout.chunkSize))
        }
        let count = Int(min(UInt64(workspace.batchChunks * layout.chunkSize), length - start))
        let read = try readRun(
            at: start, into: workspace.reply.slice(..<count), isCached: true, workspace)
        return read == 0 ? .max : start + UInt64(read)
    }

    /// Does `EncryptedFile.read`, up to the known length.
    /// - Parameter mayCache: false for another machine's data, which is read again each time.
    func read(
        at plaintextOffset: UInt64, into buffer: UnsafeMutableRawBufferPointer, isAhead: Bool, mayCache: Bool,
        _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let length = parts.length
        let authentic = parts.authenticLength
        guard plaintextOffset < length, buffer.count > 0 else { return 0 }
        if plaintextOffset >= authentic {
            throw .damaged("it should be \(authentic) bytes long, read at \(plaintextOffset)")
        }
        let count = Int(min(UInt64(buffer.count), min(length, authentic) - plaintextOffset))
        let wanted = buffer.slice(..<count)
        let chunkSize = UInt64(layout.chunkSize)
        let chunks = Int((plaintextOffset + UInt64(count) - 1) / chunkSize - plaintextOffset / chunkSize) + 1
        let isCached = mayCache && chunks <= Self.largestCachedRun
        // Once one chunk is missing, so are those after it.
        var mayBeCached = isCached || isAhead
        var done = isCached || isAhead ? 0 : try readBeside(at: plaintextOffset, into: wanted, workspace)
        while done < count {
            let offset = plaintextOffset + UInt64(done)
            let rest = wanted.slice(done...)
            if mayBeCached, let hit = readFromCache(at: offset, into: rest, isAhead: isAhead) {
                done += hit
            } else {
                mayBeCached = isCached
                let read = try readRun(at: offset, into: rest, isCached: isCached, workspace)
                // The file was cut during the read.
                if read == 0 { return done }
                done += read
            }
        }
        return count
    }

    /// Reads the whole batches of a large range by the worker and the helper at the same time.
    /// - Returns: the number of bytes read. The worker continues after them, even if the rest is damaged or was cut.
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
            let read = try readRun(
                at: plaintextOffset + UInt64(start), into: wanted.slice(start..<(start + batchSize)), isCached: false,
                workspace)
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
                file: parts.token, chunk: plaintextOffset / UInt64(chunkSize), range: start..<(start + count),
                isLastUse: isAhead && start + count == chunkSize, to: destination)
        else { return nil }
        store.counters.cacheHits.count()
        return count
    }

    /// Reads a run of adjacent uncached chunks with one pread(2), at most one batch. Returns the number of bytes read.
    private func readRun(
        at plaintextOffset: UInt64, into wanted: UnsafeMutableRawBufferPointer, isCached: Bool, _ workspace: Workspace
    ) throws(StoreError) -> Int {
        let chunkSize = UInt64(layout.chunkSize)
        let first = plaintextOffset / chunkSize
        let last = (plaintextOffset + UInt64(wanted.count) - 1) / chunkSize
        var run = 1
        while run < workspace.batchChunks, first + UInt64(run) <= last,
            !(isCached && store.cache.contains(file: parts.token, chunk: first + UInt64(run)))
        { run += 1 }
        let skipped = Int(plaintextOffset - first * chunkSize)
        let count = min(run * Int(chunkSize) - skipped, wanted.count)
        let destination = wanted.slice(..<count)
        if isCached { store.counters.cacheMisses.count(run) }
        for _ in 0..<Self.maximumRetries {
            let seen = parts.changes.value
            if try runs.tryRun(first, run, skipped, destination, isCached ? seen : nil, workspace) { return count }
            // Without a running writer, this is damage.
            if parts.changes.value == seen && !ChangeCounter.isChanging(seen) { break }
        }
        return try file.writing.withLock { (_) throws(StoreError) -> Int in
            let length = parts.length
            guard plaintextOffset < length else { return 0 }
            let left = Int(min(UInt64(count), length - plaintextOffset))
            let run = Int((plaintextOffset + UInt64(left) - 1) / chunkSize - first) + 1
            let seen = isCached ? parts.changes.value : nil
            guard try runs.tryRun(first, run, skipped, destination.slice(..<left), seen, workspace) else {
                throw .damaged("chunk \(first): the file ends early")
            }
            return left
        }
    }
}
