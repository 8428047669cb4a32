internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Changes that go to the log before they are made in place (FileFormat, Log).
extension EncryptedFile {
    /// True while the log has changes that are not in place.
    package var isLogged: Bool { !records.log.isEmpty }

    // MARK: Appending

    /// Appends an entry of a change. `workspace.records` begins with its body, if it has one. The caller holds the write
    /// lock.
    /// - Parameters:
    ///   - exactLength: the file's length from then on, if the log has it.
    ///   - undoes: true if it takes back a growth.
    /// - Throws: `ENOSPC` if the records have no space in place, `EFBIG` if the store cannot have a file that large.
    func append(
        _ kind: LogEntry.Kind, first: UInt64 = 0, end: UInt64 = 0, bodySize: Int = 0, exactLength: UInt64?,
        undoes: Bool = false, _ state: inout WriteState, _ writer: Descriptor, _ workspace: Workspace
    ) throws(StoreError) {
        let entry = LogEntry(
            kind, fileID: fileID, sealCounter: state.header.sealCounter, first: first, end: end, bodySize: bodySize,
            exactLength: exactLength)
        try store.log.append(
            entry, undoes: undoes, in: workspace.logEntry, of: self, writer,
            reserving: { () throws(StoreError) in try reserve(for: entry, &state, writer) },
            { entry, position, log in records.log.add(entry, at: position, in: log, layout) })
        store.counters.ciphertextBytesWritten.count(bodySize)
    }

    // MARK: Reading

    /// Takes over the changes that a read-only store has found in the log.
    func adoptLoggedChanges() {
        guard let found = store.foundChanges?.current, let backingSize = try? reader.status().st_size else { return }
        writing.withLock { state in
            var header = state.header
            adopt(found, UInt64(clamping: backingSize), &header)
            state.follow(header)
        }
    }

    /// The caller holds the write lock and has just read the header, which becomes the one that fits the changes.
    func adopt(_ found: FoundChanges.Found, _ backingSize: UInt64, _ header: inout FileHeader) {
        let sealCounter = header.sealCounter
        let changes = found.changes(of: fileID, sealCounter: sealCounter)
        // A writer may have sealed the file since the log was read.
        if !store.followsWriter, found.files[fileID]?.outdated(sealCounter) ?? 0 > 0 {
            store.faults.add(.foundLog, LogRecovery.outdated)
        }
        records.log.adopt(changes, in: found.log)
        if changes.isEmpty { return }
        let length = changes.length(backingSize, layout)
        if changes.unseal(header, layout) { header.isSealed = false }
        header.keepLost(changes, length, layout)
        lengths.set(length, by: header)
        if !changes.holes.isEmpty { records.isSparse.store(true, ordering: .releasing) }
    }
}

/// Logged changes are put in place, by a checkpoint and after an unclean end (FileFormat: Log-6).
extension EncryptedFile {
    /// Writes changes that are durable in the log to the backing file. Keeps its times. The caller syncs it.
    /// - Parameter before: as for `keepingAttributes`.
    func placeChanges(
        _ changes: LoggedChanges, _ writer: Descriptor, before: stat? = nil, from log: Descriptor
    ) throws(StoreError) {
        try keepingAttributes(writer, before) { (_) throws(StoreError) in
            // The header, which no longer authenticates the former length, first.
            if changes.mayFreeSpace {
                records.log.spaceReleases.add(1, ordering: .acquiringAndReleasing)
                if syncs.failures.load(ordering: .acquiring) > 0 { try rewriteHeader(writer) }
                do throws(StoreError) { try writer.synchronize(dataOnly: true) } catch {
                    countFailedBackingSync()
                    throw error
                }
            }
            try placeLength(changes, writer)
            try placeRecords(changes, writer, from: log)
        }
    }

    private func placeLength(_ changes: LoggedChanges, _ writer: Descriptor) throws(StoreError) {
        if let exact = changes.exactLength {
            try writer.truncate(to: layout.backingSize(ofPlaintextLength: exact.length))
        }
        for hole in changes.holes {
            // A record that is newer than the hole keeps its space.
            var start = hole.chunks.lowerBound
            let kept = changes.records.keys.filter { hole.chunks.contains($0) }.sorted()
            for end in kept + [hole.chunks.upperBound] {
                if start < end { try punch(start..<end, writer) }
                start = end + 1
            }
        }
    }

    /// Makes a hole of chunks in the backing file. Its size stays.
    func punch(_ chunks: Range<UInt64>, _ writer: Descriptor) throws(StoreError) {
        let start = layout.recordOffset(ofChunk: chunks.lowerBound)
        let end = min(layout.recordOffset(ofChunk: chunks.upperBound), UInt64(clamping: try writer.status().st_size))
        guard start < end else { return }
        try retrying {
            linux_fallocate(
                writer.fd, linux_FALLOC_FL_PUNCH_HOLE | linux_FALLOC_FL_KEEP_SIZE, Int64(start), Int64(end - start))
        }
    }

    /// Copies the records, adjacent ones with one write.
    private func placeRecords(
        _ changes: LoggedChanges, _ writer: Descriptor, from log: Descriptor
    ) throws(StoreError) {
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

    /// Drops changes that are in place, durably.
    func dropLogged(through sequence: UInt64) {
        reportingTime { () throws(StoreError) in try records.log.drop(through: sequence, reader) }
        if syncs.hasLostChunks.load(ordering: .acquiring) { _ = store.durability.schedule.addGrown(self) }
    }

    private func reportingTime(_ body: () throws(StoreError) -> Void) {
        do throws(StoreError) { try body() } catch {
            store.faults.add(.placing(fileID), "a time that a program has set is lost (\(error.reason))")
        }
    }

    /// Takes over the changes in a new log, which has all that are not in place.
    func relocateLogged(_ changes: LoggedChanges, to log: Descriptor) {
        reportingTime { () throws(StoreError) in try records.log.relocate(changes, to: log, reader) }
        let lost = changes.lostChunks
        if lost.isEmpty { return }
        syncs.hasLostChunks.store(true, ordering: .releasing)
        for chunk in lost { store.cache.remove(file: token, chunk: chunk) }
    }

    /// Returns true if the file has no name and nobody has it open. Its changes are then dropped.
    func abandonIfRemoved() -> Bool {
        guard !isBusy, reader.hasNoName else { return false }
        records.log.abandon()
        return true
    }

    /// Puts changes in place after an unclean end, and returns the descriptor to be synced. The header may be older than
    /// they are: the log is durable before the files.
    func recover(_ changes: LoggedChanges, from log: Descriptor) throws(StoreError) -> Descriptor {
        let writer = try reader.reopenedForWriting()
        let status = try writer.status()
        let final = changes.length(UInt64(clamping: status.st_size), layout)
        let isSparse = !changes.holes.isEmpty
        try writing.withLock { (state) throws(StoreError) in
            let header = state.header
            let isOutdated = header.isSealed ? changes.unseal(header, layout) : header.length > final
            guard
                isOutdated || isSparse && !header.isSparse || header.sealCounter < changes.sealCounter
                    || !changes.lostChunks.isEmpty
            else { return }
            try writeHeader(&state, writer) { header in
                if isOutdated {
                    header.isSealed = false
                    header.length = min(header.length, final)
                }
                header.isSparse = header.isSparse || isSparse
                // Entries that are put in place now must not be applied once the file is sealed.
                header.sealCounter = max(header.sealCounter, changes.sealCounter)
                header.keepLost(changes, final, layout)
            }
        }
        var before = status
        // Chunks may have been written past its end since.
        if changes.areNewest(status) { before.st_mtim = timespec(nanoseconds: changes.time) }
        try placeChanges(changes, writer, before: before, from: log)
        return writer
    }
}

extension FileHeader {
    /// Raises the durable length past the last lost chunk, which must not be taken for a torn tail.
    mutating func keepLost(_ changes: LoggedChanges, _ fileLength: UInt64, _ layout: ChunkLayout) {
        guard let lost = changes.lostChunks.last, !isSealed else { return }
        length = max(length, min(fileLength, layout.plaintextOffset(ofChunk: lost + 1)))
    }
}
