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
        if changes.unseal(state.header, layout) { state.header.isSealed = false }
        state.header.keepLost(changes, length, layout)
        lengths.set(length, by: state.header)
        if !changes.holes.isEmpty { records.isSparse.store(true, ordering: .releasing) }
    }
}
