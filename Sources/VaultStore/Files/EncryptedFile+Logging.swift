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
            records.log.add(entry, at: position, in: log, layout)
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
            store.faults.add(.foundLog, LogRecovery.outdated)
        }
        records.log.adopt(changes, in: found.log)
        if changes.isEmpty { return }
        let length = changes.length(backingSize, layout)
        if length != state.header.length { state.header.isSealed = false }
        state.header.keepLost(changes, length, layout)
        lengths.set(length, by: state.header)
        if !changes.holes.isEmpty { records.isSparse.store(true, ordering: .releasing) }
    }
}
