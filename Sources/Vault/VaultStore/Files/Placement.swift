internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Puts logged changes in place, in a checkpoint and after an unclean end (FileFormat: Log-6). It needs the lock of the
/// backing file's attributes but not the write lock, because it copies records as they are.
struct Placement {
    let parts: FileParts
    let changes: LoggedChanges
    /// The log's file, which has the changes durably.
    let log: Descriptor
    /// The backing file, for writing.
    let writer: Descriptor

    private var layout: ChunkLayout { parts.layout }

    /// Writes the changes to the backing file. Keeps its times. The caller syncs it.
    /// - Parameters:
    ///   - before: as for `keepingAttributes`.
    ///   - onFailedSync: called if the backing file cannot be synced.
    func run(before: stat? = nil, onFailedSync: () -> Void) throws(StoreError) {
        try parts.keepingAttributes(writer, before) { (_) throws(StoreError) in
            // First sync the header, which no longer authenticates the former length.
            if changes.mayFreeSpace {
                parts.log.freedSpace.add(1, ordering: .acquiringAndReleasing)
                if parts.syncs.failures.load(ordering: .acquiring) > 0 { try parts.syncs.rewriteHeader(writer) }
                do throws(StoreError) { try writer.synchronize(dataOnly: true) } catch {
                    onFailedSync()
                    throw error
                }
            }
            try placeLength()
            try placeRecords()
        }
    }

    private func placeLength() throws(StoreError) {
        if let exact = changes.exactLength {
            try writer.truncate(to: layout.backingSize(ofPlaintextLength: exact.length))
        }
        for hole in changes.holes {
            // A record newer than the hole keeps its space.
            var start = hole.chunks.lowerBound
            let kept = changes.records.keys.filter { hole.chunks.contains($0) }.sorted()
            for end in kept + [hole.chunks.upperBound] {
                if start < end { try SparseMap(parts: parts).punch(start..<end, writer) }
                start = end + 1
            }
        }
    }

    /// Copies the records, adjacent ones with one write.
    private func placeRecords() throws(StoreError) {
        let chunks = changes.records.keys.sorted()
        var buffer = [UInt8](
            repeating: 0, count: min(chunks.count, max(1, (1 << 20) / layout.recordSize)) * layout.recordSize)
        var done = 0
        while done < chunks.count {
            let first = chunks[done]
            var filled = 0
            while done < chunks.count, chunks[done] == first + UInt64(filled / layout.recordSize),
                filled < buffer.count,
                filled % layout.recordSize == 0, let record = changes.records[chunks[done]]
            {
                try buffer.withMutableBytes { (bytes) throws(StoreError) in
                    try log.read(record, into: bytes.slice(filled..<(filled + record.size)))
                }
                filled += record.size
                done += 1
            }
            try buffer.withBytes { (bytes) throws(StoreError) in
                try writer.write(bytes.slice(..<filled), at: layout.recordOffset(ofChunk: first))
            }
        }
    }
}

/// After an unclean end.
extension Placement {
    /// Puts the changes in place. The caller syncs the backing file. The header may be older than the changes, because
    /// the log is durable before the files.
    func recover(_ file: EncryptedFile) throws(StoreError) {
        let status = try writer.status()
        let length = changes.length(UInt64(clamping: status.st_size), layout)
        try file.writing.withLock { (writer) throws(StoreError) in try writer.fitHeader(to: changes, length) }
        var before = status
        // Keep a later time, because chunks may have been written past the file's end since.
        if changes.areNewest(status) { before.st_mtim = timespec(nanoseconds: changes.time) }
        try run(before: before, onFailedSync: file.countFailedSync)
    }
}

extension FileWriter {
    /// Makes the header fit changes before they are put in place. With them the file has `length` bytes.
    fileprivate mutating func fitHeader(to changes: LoggedChanges, _ length: UInt64) throws(StoreError) {
        let isSparse = !changes.holes.isEmpty
        let isOutdated = header.isSealed ? changes.unseal(header, layout) : header.length > length
        guard
            isOutdated || isSparse && !header.isSparse || header.sealCounter < changes.sealCounter
                || !changes.lostChunks.isEmpty
        else { return }
        try openedForNow(evenIfClosed: true) { (writer) throws(StoreError) in
            let layout = writer.layout
            try writer.writeHeader { header in
                if isOutdated {
                    header.isSealed = false
                    header.length = min(header.length, length)
                }
                header.isSparse = header.isSparse || isSparse
                // Once the file is sealed, the entries put in place now must not be applied again.
                header.sealCounter = max(header.sealCounter, changes.sealCounter)
                header.keepLost(changes, length, layout)
            }
        }
    }
}

extension FileHeader {
    /// Raises the durable length past the last lost chunk, because a recovery must not take that for a torn tail.
    mutating func keepLost(_ changes: LoggedChanges, _ fileLength: UInt64, _ layout: ChunkLayout) {
        guard let lost = changes.lostChunks.last, !isSealed else { return }
        length = max(length, min(fileLength, layout.plaintextOffset(ofChunk: lost + 1)))
    }
}
