internal import CLinux
internal import FileSystem
package import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Changes that go to the log before they are made in place (FileFormat, Log).
extension EncryptedFile {
    /// The changes in the log, and the log that has them.
    struct Logged: Sendable {
        var changes = LoggedChanges()
        var log: Descriptor?
        /// True if the file has no name, and its changes were dropped.
        var isAbandoned = false
    }

    /// True while the log has changes that are not in place.
    package var isLogged: Bool { hasLoggedChanges.load(ordering: .acquiring) }

    /// True while the file's length is that of an entry in the log, and not that of the backing file.
    var hasLoggedLength: Bool { isLogged && logged.withLock { $0.changes.exactLength != nil } }

    /// True if another hole in the log would make lookups slow.
    var hasMostHoles: Bool { isLogged && logged.withLock { $0.changes.holes.count >= LoggedChanges.mostHoles } }

    /// The last entry of the file. 0 without one.
    var lastLoggedSequence: UInt64 { isLogged ? logged.withLock { $0.changes.lastSequence } : 0 }

    // MARK: Appending

    /// Appends a batch of records that `workspace.records` begins with.
    /// - Parameter exactLength: the file's length from then on, if the log has it.
    func log(
        _ sealCounter: UInt64, records size: Int, first: UInt64, exactLength: UInt64?, undoes: Bool = false,
        _ writer: Descriptor, _ workspace: Workspace
    ) throws(StoreError) {
        var entry = LogEntry(.records, fileID: fileID)
        entry.first = first
        entry.bodySize = size
        try log(sealCounter, &entry, exactLength: exactLength, undoes, writer, workspace.logEntry)
    }

    /// Appends a hole.
    /// - Parameter exactLength: as above.
    func log(
        _ sealCounter: UInt64, hole chunks: Range<UInt64>, exactLength: UInt64?, _ writer: Descriptor,
        _ workspace: Workspace
    ) throws(StoreError) {
        var entry = LogEntry(.hole, fileID: fileID)
        (entry.first, entry.end) = (chunks.lowerBound, chunks.upperBound)
        try log(sealCounter, &entry, exactLength: exactLength, false, writer, workspace.logEntry)
    }

    /// Appends a cut to a length between two chunks.
    func log(
        _ sealCounter: UInt64, length: UInt64, undoes: Bool, _ writer: Descriptor, _ workspace: Workspace
    ) throws(StoreError) {
        var entry = LogEntry(.length, fileID: fileID)
        try log(sealCounter, &entry, exactLength: length, undoes, writer, workspace.logEntry)
    }

    private func log(
        _ sealCounter: UInt64, _ entry: inout LogEntry, exactLength: UInt64?, _ undoes: Bool, _ writer: Descriptor,
        _ buffer: UnsafeMutableRawBufferPointer
    ) throws(StoreError) {
        entry.sealCounter = sealCounter
        if let exactLength {
            entry.length = exactLength
            entry.isExact = true
        }
        try store.log.append(entry, undoes: undoes, in: buffer, of: self, writer) { entry, position, log in
            logged.withLock { logged in
                logged.changes.apply(entry, at: position, layout)
                (logged.log, logged.isAbandoned) = (log, false)
            }
            hasLoggedChanges.store(true, ordering: .releasing)
            loggedTime.store(entry.time, ordering: .releasing)
        }
        store.counters.ciphertextBytesWritten.count(entry.bodySize)
    }

    // MARK: Reading

    /// Takes over the changes that a read-only store has found in the log.
    func adoptLoggedChanges() {
        guard let found = store.foundChanges?.current, let backingSize = try? reader.status().st_size else { return }
        writing.withLock { adopt(found, UInt64(clamping: backingSize), &$0) }
    }

    /// The caller holds the write lock and has just read the header.
    func adopt(_ found: FoundChanges.Found, _ backingSize: UInt64, _ state: inout WriteState) {
        let sealCounter = state.header.sealCounter
        let changes = found.changes(of: fileID, sealCounter: sealCounter)
        // A writer may have sealed the file since the log was read.
        if !store.followsWriter, found.files[fileID]?.outdated(sealCounter) ?? 0 > 0 {
            store.faults.note(.foundLog, LogRecovery.outdated)
        }
        logged.withLock { $0 = Logged(changes: changes, log: found.log) }
        hasLoggedChanges.store(!changes.isEmpty, ordering: .releasing)
        loggedTime.store(changes.time, ordering: .releasing)
        if changes.isEmpty { return }
        let length = changes.length(backingSize, layout)
        if length != state.header.length { state.header.isSealed = false }
        state.header.keepLost(changes, length, layout)
        currentLength.store(length, ordering: .releasing)
        currentAuthenticLength.store(state.header.authenticLength(of: length), ordering: .releasing)
        if !changes.holes.isEmpty { isSparse.store(true, ordering: .releasing) }
    }

    /// Replaces records that were read in place by those in the log.
    /// - Parameter records: of adjacent chunks from `first` on.
    func replaceLogged(_ first: UInt64, in records: UnsafeMutableRawBufferPointer) throws(StoreError) {
        // The position and its log together: a new log may begin. Not under the lock: whoever appends an entry takes it.
        try LoggedChanges.replace(first, in: records, layout) { chunk in
            logged.withLock { logged in logged.changes.source(ofChunk: chunk).map { ($0, logged.log) } }
        }
    }

    // MARK: Putting in place

    /// Writes changes that are durable in the log to the backing file. Keeps its times. The caller syncs it.
    func putInPlace(_ changes: LoggedChanges, _ writer: Descriptor, from log: Descriptor) throws(StoreError) {
        try putInPlace(changes, writer, before: nil, keeping: length, from: log)
    }

    /// - Parameter futureLength: of what the log has by now. Its space stays allocated.
    private func putInPlace(
        _ changes: LoggedChanges, _ writer: Descriptor, before: stat?, keeping futureLength: UInt64 = 0,
        from log: Descriptor
    ) throws(StoreError) {
        try keepingAttributes(writer, before) { (_) throws(StoreError) in
            // The header, which no longer authenticates the former length, first.
            if changes.exactLength != nil || !changes.holes.isEmpty {
                if failedBackingSyncs.load(ordering: .acquiring) > 0 { try rewriteHeader(writer) }
                do throws(StoreError) { try writer.synchronize(dataOnly: true) } catch {
                    noteFailedBackingSync()
                    throw error
                }
            }
            try placeLength(changes, writer, keeping: futureLength)
            try placeRecords(changes, writer, from: log)
        }
    }

    private func placeLength(
        _ changes: LoggedChanges, _ writer: Descriptor, keeping futureLength: UInt64
    ) throws(StoreError) {
        if let exact = changes.exactLength {
            let end = layout.backingSize(ofPlaintextLength: exact.length)
            try writer.truncate(to: end)
            let futureEnd = layout.backingSize(ofPlaintextLength: futureLength)
            // Best effort: the changes at hand need none of it.
            if futureEnd > end && !isSparse.load(ordering: .acquiring) { try? reserve(writer, end..<futureEnd) }
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

    /// Notes that the changes up to `sequence` are in place, durably.
    func dropLogged(through sequence: UInt64) { changeLogged { $0.changes.drop(through: sequence) } }

    /// Takes over the changes in a new log, which has all that are not in place.
    func relocateLogged(_ changes: LoggedChanges, to log: Descriptor) {
        changeLogged { ($0.changes, $0.log) = (changes, log) }
        let lost = changes.lostChunks
        if lost.isEmpty { return }
        hasLostChunks.store(true, ordering: .releasing)
        for chunk in lost { store.cache.remove(file: token, chunk: chunk) }
    }

    private func changeLogged(_ change: (inout Logged) -> Void) {
        // Before an entry is missing, for `readRecords`.
        checkpoints.add(1, ordering: .sequentiallyConsistent)
        logged.withLock { logged in
            if !logged.isAbandoned { change(&logged) }
            hasLoggedChanges.store(!logged.changes.isEmpty, ordering: .releasing)
        }
        if !isLogged { loggedTime.store(0, ordering: .releasing) }
    }

    /// Returns true if the file has no name and nobody has it open. Its changes are then dropped: if a program gets at it all the
    /// same, by a descriptor of O_PATH, it finds errors instead of older versions.
    func abandonIfRemoved() -> Bool {
        guard !isBusy, let status = try? reader.status(), status.st_nlink == 0 else { return false }
        logged.withLock { logged in
            logged.changes.loseRecords()
            logged.isAbandoned = true
        }
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
            let isOutdated =
                header.isSealed ? changes.exactLength != nil || final > header.length : header.length > final
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
        // Unless a program has set the times since.
        if Self.nanoseconds(status.st_ctim) <= changes.time { before.st_mtim = Self.timespec(changes.time) }
        try putInPlace(changes, writer, before: before, from: log)
        return writer
    }

    // MARK: Times

    /// The backing file's attributes with the time of the last logged change, which the backing file does not show yet.
    package func shownStatus(_ status: stat) -> stat {
        let nanoseconds = loggedTime.load(ordering: .acquiring)
        if nanoseconds == 0 { return status }
        let time = Self.timespec(nanoseconds)
        var result = status
        if Self.isOlder(status.st_mtim, time) { result.st_mtim = time }
        if Self.isOlder(status.st_ctim, time) { result.st_ctim = time }
        return result
    }

    /// Notes the time of a write to the backing file while the log has changes. A checkpoint at work would restore an older
    /// one.
    func noteTime(of writer: Descriptor) {
        guard isLogged, let status = try? writer.status() else { return }
        loggedTime.max(Self.nanoseconds(status.st_mtim), ordering: .acquiringAndReleasing)
    }

    /// Gives the backing file the time of the last logged change, before a program changes its attributes.
    func settleTimes(_ descriptor: Descriptor) throws(StoreError) {
        let nanoseconds = loggedTime.exchange(0, ordering: .acquiringAndReleasing)
        guard nanoseconds != 0 else { return }
        let time = Self.timespec(nanoseconds)
        guard Self.isOlder(try descriptor.status().st_mtim, time) else { return }
        let times = [Glibc.timespec(tv_sec: 0, tv_nsec: Int(linux_UTIME_OMIT)), time]
        try retrying { futimens(descriptor.fd, times) }
    }

    private static func timespec(_ nanoseconds: UInt64) -> timespec {
        Glibc.timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    }

    private static func nanoseconds(_ time: timespec) -> UInt64 {
        UInt64(clamping: time.tv_sec) * 1_000_000_000 + UInt64(clamping: time.tv_nsec)
    }

    private static func isOlder(_ a: timespec, _ b: timespec) -> Bool {
        (a.tv_sec, a.tv_nsec) < (b.tv_sec, b.tv_nsec)
    }
}

extension FileHeader {
    /// Raises the durable length past the last lost chunk, which must not be taken for a torn tail.
    fileprivate mutating func keepLost(_ changes: LoggedChanges, _ fileLength: UInt64, _ layout: ChunkLayout) {
        guard let lost = changes.lostChunks.last, !isSealed else { return }
        length = max(length, min(fileLength, layout.plaintextOffset(ofChunk: lost + 1)))
    }
}
