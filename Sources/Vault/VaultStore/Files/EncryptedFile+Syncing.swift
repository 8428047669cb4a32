internal import CLinux
internal import Glibc
internal import LinuxSystem
internal import Synchronization
internal import VaultFormat

/// Syncs of the backing file, and what follows if one fails (FileFormat: Store-9).
extension EncryptedFile {
    /// Counts a failed sync of the backing file. Takes no lock of the file.
    func countFailedBackingSync() {
        syncs.failures.add(1, ordering: .acquiringAndReleasing)
        store.durability.addDoubtful(self)
    }

    /// Syncs the backing file, unless all writes to it are durable.
    func synchronizeBacking(_ descriptor: Descriptor, dataOnly: Bool) throws(StoreError) {
        try syncs.synced.withLock { (synced) throws(StoreError) in
            let made = syncs.writes.load(ordering: .acquiring)
            let failures = syncs.failures.load(ordering: .acquiring)
            let isRewritten = synced.handledFailures != failures
            // Attributes are not counted.
            if dataOnly && made == synced.writes && !isRewritten { return }
            do throws(StoreError) {
                if isRewritten { try rewriteDoubtful() }
                try descriptor.synchronize(dataOnly: dataOnly)
            } catch {
                countFailedBackingSync()
                // Nobody misses a file without a name.
                if (try? reader.status().st_nlink) != 0 {
                    store.faults.add(
                        .syncing(token),
                        "the data of a file could not be made durable (\(error.reason))\(StoreFaults.retry)")
                }
                throw error
            }
            store.faults.clear(.syncing(token))
            (synced.writes, synced.handledFailures) = (made, failures)
            if isRewritten { store.durability.removeDoubtful(self) }
            // Data that the kernel had dropped is durable as something else now.
            if isRewritten { try checkDoubtful() }
        }
    }

    /// Reads what was written in place since the durable length, and writes it again. Linux may drop pages whose writeback
    /// failed, or take them for clean (PostgreSQL wiki, Fsync Errors).
    private func rewriteDoubtful() throws(StoreError) {
        try writing.withLock { (state) throws(StoreError) in
            guard let writer = state.writer else { return }
            // Also waits for a checkpoint of the file.
            try keepingAttributes(writer) { (status) throws(StoreError) in
                try rewriteHeader(writer)
                let floor = layout.chunkIndex(ofPlaintextOffset: state.header.isSealed ? length : state.header.length)
                try rewrite(writer, from: layout.recordOffset(ofChunk: floor), to: UInt64(clamping: status.st_size))
            }
        }
    }

    /// Writes the last header again, which a failed sync may have dropped. Needs no key, and no lock that a checkpoint may wait for.
    func rewriteHeader(_ writer: Descriptor) throws(StoreError) {
        try syncs.writtenHeader.withLock { (written) throws(StoreError) in
            if let written { try writer.write(written, at: 0) }
        }
    }

    private func rewrite(_ writer: Descriptor, from start: UInt64, to end: UInt64) throws(StoreError) {
        var buffer = [UInt8](repeating: 0, count: 1 << 20)
        var position = start
        // Holes stay holes.
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

    /// Reports the first chunk after the durable length that does not verify: its data was lost by a failed sync.
    private func checkDoubtful() throws(StoreError) {
        let lost = try writing.withLock { (state) throws(StoreError) -> UInt64? in
            hasKeys && !state.header.isSealed ? try firstTornChunk(state.header) : nil
        }
        if let lost { store.faults.add(LostChunks(file: self, chunks: lost..<(lost + 1))) }
    }
}
