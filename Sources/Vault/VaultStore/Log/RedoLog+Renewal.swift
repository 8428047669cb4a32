internal import CLinux
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import SystemPackage
internal import VaultFormat

/// A new log, begun when the old one can no longer be trusted (FileFormat: Log-14). It gets every readable entry that
/// is not in place. An unreadable one costs only its own chunks, because memory has the rest.
extension RedoLog {
    /// Begins a new log if something has failed since the last one began. Everything is durable then.
    /// - Throws: the store's error. The log then works as little as before.
    package func renewIfNeeded() throws(StoreError) {
        // Return at once, because a lock must not wait for a checkpoint.
        guard writing.access({ $0.phase.fault != nil }) else { return }
        try checkpointing.withLock { (_) throws(StoreError) in try renew() }
    }

    /// - Parameter isInPlace: true for an entry that need not be in the new log. Nil if all must be, and only if a new
    ///   log is needed.
    func renew(_ isInPlace: ((LogEntry) -> Bool)? = nil) throws(StoreError) {
        // Without a file there is nothing to renew.
        guard writing.access({ $0.phase.log != nil && (isInPlace != nil || $0.phase.fault != nil) }) else { return }
        try writerLock?.verify()
        // Make the file without the locks that requests take, because it may wait for the store longer than other
        // calls.
        let temporary = try VaultDirectory.temporaryEntry()
        let log = try Descriptor(at: root, temporary, flags: O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
        let losses: [Loss]
        do throws(StoreError) {
            try log.giveToOwner(of: root)
            losses = try syncing.access { (_) throws(StoreError) in
                try writing.access { (writer) throws(StoreError) in
                    try makeNewLog(log, temporary, isInPlace ?? { _ in false }, from: &writer)
                }
            }
        } catch {
            root.removeQuietly(temporary)
            throw error
        }
        for loss in losses { loss.file.lose(loss.chunks) }
        // The log can acknowledge entries only if its name is durable.
        if let fault = writing.access({ $0.phase.fault }) { throw fault }
        faults.clear(.log)
        schedule.countRenewal()
    }

    /// - Parameter log: a new file with the name `temporary`.
    private func makeNewLog(
        _ log: Descriptor, _ temporary: Component, _ isInPlace: (LogEntry) -> Bool, from writer: inout LogWriter
    ) throws(StoreError) -> [Loss] {
        guard let old = writer.phase.log else { throw .system(.ioError) }
        var header = try Self.newHeader(size: writer.area.header.logSize)
        (header.startSequence, header.startOffset) = (writer.area.sequence, LogHeader.areaSize)
        try writer.write(header, to: log)
        // Make sure that the store answers. Only then does a failed read mean a lost entry.
        try log.synchronize(dataOnly: false)
        var reader = try LogReader(old.descriptor, writer.area.header, keys: keys, layout)
        let kept = writer.backlog.entries.filter { !isInPlace($0.entry) }
        let copied = try copy(kept, &reader, from: writer, to: log, header)
        let entries = copied.map(\.logged)
        // Give the new log its full size, so that a cut is noticed, with space to take growths back if the disk has it.
        try log.truncate(to: entries.end)
        var area = writer.area
        area.renew(header, entries)
        do throws(StoreError) { try area.prepare(log, upTo: entries.end + area.undoSpace) } catch {
            guard error.isNoSpace else { throw error }
        }
        try log.synchronize(dataOnly: false)
        // The store may have come back meanwhile.
        for (entry, former) in zip(copied, kept) where entry.isNewlyLost && isReadable(former, &reader) {
            throw .system(.ioError)
        }
        let isOldThere = hasItsName(old, size: writer.area.prepared)
        let new = OpenLog(descriptor: log, identity: FileIdentity(try log.status()))
        try giveName(temporary, keepsOld: !isOldThere || copied.contains { $0.isNewlyLost })
        var files: [UInt64: LoggedChanges] = [:]
        for logged in entries { files[logged.entry.fileID, default: LoggedChanges()].apply(logged, layout) }
        let losses = copied.filter(\.isNewlyLost).compactMap { copied in
            let entry = copied.logged.entry
            return writer.backlog.targets[entry.fileID].map { ($0.file, entry.chunks(layout)) }
        }
        for (fileID, target) in writer.backlog.targets {
            target.file.relocate(files[fileID] ?? LoggedChanges(), to: log)
        }
        writer.renew(new, area, entries)
        do throws(StoreError) { try root.synchronize(dataOnly: false) } catch {
            _ = writer.fail(error)
            return losses
        }
        durable.store(writer.area.lastSequence, ordering: .releasing)
        return losses
    }

    private typealias Loss = (file: any LoggedFile, chunks: Range<UInt64>)

    private struct CopiedEntry {
        let logged: LoggedEntry
        let isNewlyLost: Bool
    }

    /// Writes entries to a new log, with new numbers.
    private func copy(
        _ entries: [LoggedEntry], _ reader: inout LogReader, from writer: borrowing LogWriter, to log: Descriptor,
        _ header: LogHeader
    ) throws(StoreError) -> [CopiedEntry] {
        var copied: [CopiedEntry] = []
        var offset = LogHeader.areaSize
        for (index, old) in entries.enumerated() {
            let needsBody = old.entry.kind == .records
            // Try twice, because a moment ago the store may not have answered.
            var isThere = needsBody ? isReadable(old, &reader) || isReadable(old, &reader) : true
            if !isThere {
                isThere = try reader.withBytes(of: old.entry) { (bytes) throws(StoreError) in
                    writer.unsynced.copy(
                        old.entry, into: bytes.slice(LogEntry.headSize..<(bytes.count - LogEntry.tagSize)))
                }
            }
            var entry = isThere ? old.entry : old.entry.lost
            entry.sequence = header.startSequence + UInt64(index)
            entry.durable = entry.sequence - 1
            try reader.withBytes(of: entry) { (bytes) throws(StoreError) in
                try writer.write(entry, in: bytes, to: log, at: offset, salt: header.salt)
            }
            copied.append(CopiedEntry(logged: LoggedEntry(entry: entry, offset: offset), isNewlyLost: !isThere))
            offset += entry.space
        }
        return copied
    }

    private func isReadable(_ logged: LoggedEntry, _ reader: inout LogReader) -> Bool {
        (try? reader.verify(logged.entry, at: logged.offset)) ?? false
    }

    /// Gives the new log its name.
    /// - Parameter keepsOld: true to give another name to the file that has the log's name.
    private func giveName(_ temporary: Component, keepsOld: Bool) throws(StoreError) {
        if keepsOld, (try? root.rename(temporary, as: Self.fileName, flags: linux_RENAME_EXCHANGE)) != nil {
            // Best effort: the new log has its name already.
            try? DamagedRoot.keepLog(temporary, in: root)
        } else if refusesReplacingOpenFiles {
            // The store refuses to replace the open old log, so move that aside first.
            let aside = Self.fileName + (try Descriptor.keptAddition())
            do throws(StoreError) {
                try root.rename(Self.fileName, as: aside, flags: linux_RENAME_NOREPLACE)
            } catch .system(.noSuchFileOrDirectory) {}
            do throws(StoreError) { try root.rename(temporary, as: Self.fileName) } catch {
                try? root.rename(aside, as: Self.fileName, flags: linux_RENAME_NOREPLACE)
                throw error
            }
            if keepsOld {
                try? DamagedRoot.keepLog(aside, in: root)
            } else {
                root.removeQuietly(aside)
            }
        } else {
            try root.rename(temporary, as: Self.fileName)
        }
    }
}
