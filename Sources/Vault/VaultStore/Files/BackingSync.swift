internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// A sync of a file's backing file, and what follows if it fails (FileFormat: Store-9).
struct BackingSync {
    let file: EncryptedFile

    private var parts: FileParts { file.parts }
    private var store: Store { parts.store }

    /// Syncs the backing file, unless all writes to it are durable.
    func run(_ descriptor: Descriptor, dataOnly: Bool) throws(StoreError) {
        try parts.syncs.synced.withLock { (synced) throws(StoreError) in
            let made = parts.syncs.writes.load(ordering: .acquiring)
            let failures = parts.syncs.failures.load(ordering: .acquiring)
            let isRewritten = synced.handledFailures != failures
            // Changes of attributes are not counted, but each one changes ctime, whoever made it.
            let changed = dataOnly ? nil : changeTime(of: descriptor)
            if made == synced.writes && !isRewritten {
                if dataOnly || changed != nil && changed == synced.changed { return }
            }
            do throws(StoreError) {
                if isRewritten {
                    try file.writing.withLock { (writer) throws(StoreError) in try writer.rewriteDoubtful() }
                }
                try descriptor.synchronizeIfNamed(dataOnly: dataOnly)
            } catch {
                file.countFailedSync()
                // An unlinked file is about to vanish, so its lost data is no fault.
                if !parts.reader.hasNoName {
                    store.faults.add(
                        .syncing(parts.token),
                        "the data of a file could not be made durable (\(error.reason))\(StoreFaults.retry)")
                }
                throw error
            }
            store.faults.clear(.syncing(parts.token))
            (synced.writes, synced.handledFailures) = (made, failures)
            if !dataOnly { synced.changed = changed }
            guard isRewritten else { return }
            store.durability.removeDoubtful(file)
            // Where the kernel had dropped data, an unverified chunk after the durable length is durable now.
            let lost = try file.writing.withLock { (writer) throws(StoreError) in
                parts.hasKeys && !writer.header.isSealed ? try TornTail(parts: parts).firstChunk(writer.header) : nil
            }
            if let lost { file.lose(lost..<(lost + 1)) }
        }
    }
}

extension BackingSync {
    /// The backing file's ctime, in nanoseconds. Nil if a later change can leave the same one: within a tick of the
    /// kernel's clock, or by the clock of another machine or program.
    private func changeTime(of descriptor: Descriptor) -> UInt64? {
        guard let status = try? descriptor.status(), store.keepsChangeTimes(status) else { return nil }
        let changed = status.st_ctim.nanoseconds
        // Compare with the clock that gives the times, because a busy machine can delay its ticks.
        return changed + fileTimeDelay < UInt64(clamping: nanoseconds(of: CLOCK_REALTIME_COARSE)) ? changed : nil
    }
}

extension FileWriter {
    /// Reads what was written in place since the durable length, and writes it again. After a failed writeback Linux
    /// may drop the pages, or take them for clean (PostgreSQL wiki, Fsync Errors).
    fileprivate mutating func rewriteDoubtful() throws(StoreError) {
        guard isOpen else { return }
        let floor = layout.chunkIndex(ofPlaintextOffset: header.isSealed ? length : header.length)
        let start = layout.recordOffset(ofChunk: floor)
        // Also waits for a checkpoint of the file.
        try parts.keepingAttributes(descriptor) { (status) throws(StoreError) in
            try parts.syncs.rewriteHeader(descriptor)
            try SparseMap(parts: parts).rewrite(descriptor, from: start, to: UInt64(clamping: status.st_size))
        }
    }
}

extension SparseMap {
    /// Reads the data of the backing file from `start` to `end` and writes it again. Holes stay holes.
    fileprivate func rewrite(_ writer: Descriptor, from start: UInt64, to end: UInt64) throws(StoreError) {
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        var position = start
        while position < end, let data = try offset(position, linux_SEEK_DATA) {
            let hole = try offset(data, linux_SEEK_HOLE) ?? end
            position = data
            while position < min(hole, end) {
                let size = Int(min(UInt64(buffer.count), min(hole, end) - position))
                let count = try buffer.withMutableBytes { (bytes) throws(StoreError) -> Int in
                    let count = try writer.read(at: position, into: bytes.slice(..<size))
                    try writer.write(UnsafeRawBufferPointer(bytes.slice(..<count)), at: position)
                    return count
                }
                if count == 0 { return }
                position += UInt64(count)
            }
        }
    }
}
