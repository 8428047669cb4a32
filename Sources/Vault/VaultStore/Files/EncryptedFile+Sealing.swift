internal import CLinux
package import FileSystem
internal import Glibc
package import LinuxSystem
internal import Synchronization
internal import VaultFormat

extension EncryptedFile {
    /// Number of changes of length, for `seal` to compare with.
    var lengthMark: UInt64 { writing.withLock { $0.lengthChanges } }

    /// True while a handle has the file open. It will be closed once more then.
    package var isBusy: Bool { openHandles.load(ordering: .acquiring) > 0 }

    /// True if the file was opened for writing.
    package var hasWriter: Bool { writing.withLock { $0.writer != nil } }

    /// True if the file was opened for writing and is not sealed.
    package var needsSeal: Bool { writing.withLock { $0.isUnsealed } }

    /// True if the header authenticates the length. It does so only for durable data.
    package var isSealed: Bool { writing.withLock { $0.header.isSealed } }

    /// Writes the length to the header and keeps the times. Returns false if the length has changed since `mark` was taken,
    /// if the log has changes of the file, or if its keys are wiped.
    /// - Parameter isDurable: chunks and size are on disk already (syncfs). Else they are synced first.
    func seal(ifStill mark: UInt64, isDurable: Bool) throws(StoreError) -> Bool {
        // A sync of the whole store proves nothing after one that has failed.
        if !isDurable || syncs.isDoubtful { try synchronize(dataOnly: true) }
        return try writing.withLock { (state) throws(StoreError) -> Bool in
            guard case .unsealed(let writer, _) = state.phase else { return !isLogged }
            // After a lock has wiped its keys, it is sealed when they are back.
            guard hasKeys, state.lengthChanges == mark, !isLogged else { return false }
            try store.admitChange()
            try keepingAttributes(writer) { (before) throws(StoreError) in
                // A file without a name ceases to exist when it is closed.
                if before.st_nlink == 0 { return }
                // Frees the space that was allocated for more.
                let size = UInt64(clamping: before.st_size)
                if state.space.end > size && !state.space.isAhead { try writer.truncate(to: size) }
                state.space.end = 0
                try writeSeal(&state, writer)
                store.counters.filesSealed.count()
            }
            return true
        }
    }

    /// Makes what a growing file has durable, and writes its length into the header.
    func writeDurableLength() throws(StoreError) {
        guard try reader.status().st_nlink > 0 else { return }
        let sealsBefore = writing.withLock { state in
            // A power cut must not make a torn tail of a chunk that was lost.
            if case .unsealed(_, nil) = state.phase, syncs.hasLostChunks.load(ordering: .acquiring) {
                state.awaitedLength = length
            }
            return state.awaitedLength.map { _ in state.header.sealCounter }
        }
        // It may have been sealed meanwhile.
        guard let seals = sealsBefore else { return }
        defer { writing.withLock { if $0.header.sealCounter == seals { $0.awaitedLength = nil } } }
        try synchronize(dataOnly: true)
        try writing.withLock { (state) throws(StoreError) in
            // The sync has not covered what is awaited since a seal.
            guard case .unsealed(let writer, let durable?) = state.phase, state.header.sealCounter == seals, hasKeys,
                !records.log.hasLength, durable > state.header.length
            else { return }
            try store.admitChange()
            try writeHeader(&state, writer, isHidden: true) { $0.length = durable }
        }
    }

    /// Runs `body`, which writes to the backing file, and restores the attributes that this changes. Programs see those of
    /// before until it is done.
    /// - Parameters:
    ///   - before: the attributes to restore. Nil for the current ones.
    ///   - body: gets them.
    func keepingAttributes(
        _ writer: Descriptor, _ before: stat? = nil, _ body: (stat) throws(StoreError) -> Void
    ) throws(StoreError) {
        try attributes.lock.withLock { (_) throws(StoreError) in
            let before = if let before { before } else { records.log.shownStatus(try writer.status()) }
            let capability = BackingAttributes.capability(of: writer)
            let notify = attributes.onHiddenWrite.current
            notify?((before, nil))
            defer { notify?((before, (try? writer.status()) ?? before)) }
            try body(before)
            // A change may have been logged meanwhile.
            let shown = records.log.shownStatus(before)
            do throws(StoreError) { try BackingAttributes.restore(writer, shown, capability) } catch {
                // They are nothing that must last then, and a store that goes by names cannot set them.
                guard writer.hasNoName else { throw error }
            }
        }
    }

    /// Runs `body`, which changes the backing file's mode, owner, times or attributes, while no seal is running. A seal
    /// would restore the old ones.
    /// - Throws: the error of `body`.
    package func excludingHiddenWrites<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result {
        try attributes.lock.withLock { (_) throws(StoreError) -> Result in try body() }
    }

    /// Changes the backing file's attributes except the length, inside `excludingHiddenWrites`. Its modification time is changed
    /// when the log has no changes of the file any more (`FileLog.setTime`).
    /// - Parameter pinned: any descriptor of the backing file.
    /// - Throws: `.system` with errno.
    package func apply(_ changes: AttributeChanges, to pinned: Descriptor) throws(StoreError) {
        guard let time = changes.modificationTime, isLogged else { return try changes.apply(to: pinned, kind: S_IFREG) }
        // Checks the right to set it, and changes ctime.
        var others = changes
        others.modificationTime = try pinned.status().st_mtim
        try others.apply(to: pinned, kind: S_IFREG)
        let isNow = time.tv_nsec == Int(linux_UTIME_NOW)
        let resolved = isNow ? timespec(nanoseconds: UInt64(clamping: nanoseconds(of: CLOCK_REALTIME))) : time
        if !records.log.setTime(resolved) { try changes.apply(to: pinned, kind: S_IFREG) }
    }

    /// Runs `body`, which reads the backing file's attributes, while no seal and no checkpoint is running. Both take
    /// some away for a while. Returns nil if one is running, without waiting for it.
    /// - Throws: the error of `body`.
    package func unlessHiddenWrite<Result>(_ body: () throws(StoreError) -> Result) throws(StoreError) -> Result? {
        try attributes.lock.withLockIfAvailable { (_) throws(StoreError) -> Result in try body() }
    }

    /// Clears the sealed flag, before the length changes. The header keeps the length up to which the file is durable, so
    /// that a power cut can be told from damage. The caller holds the write lock.
    /// - Parameter floor: the file is about to be cut to this length.
    func unseal(
        _ state: inout WriteState, _ writer: Descriptor, floor: UInt64 = .max
    ) throws(StoreError) {
        let durable = min(state.header.length, floor)
        guard state.header.isSealed || durable != state.header.length else { return }
        try writeHeader(&state, writer) {
            $0.isSealed = false
            $0.length = durable
        }
        lengths.setAuthentic(.max)
    }

    /// Makes the header authenticate the length, when nothing of the file is in the log and everything is durable, or none of
    /// it has a name yet. The caller holds the write lock.
    func writeSeal(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        precondition(!isLogged, "a file is in place before it is sealed")
        try writeHeader(&state, writer) {
            $0.isSealed = true
            $0.length = length
            $0.sealCounter += 1
        }
        state.tail = WriteState.Tail(layout.partialChunk(of: length))
    }

    /// Sets the sparse flag, before a hole is made. The caller holds the write lock.
    func markSparse(_ state: inout WriteState, _ writer: Descriptor) throws(StoreError) {
        guard !state.header.isSparse else { return }
        try writeHeader(&state, writer) { $0.isSparse = true }
    }

    /// Writes the header with a change: 128 bytes of one page, old or new. If the write fails, the header in memory does
    /// not change.
    /// - Parameter isHidden: true if programs must not notice. The backing file's attributes stay.
    func writeHeader(
        _ state: inout WriteState, _ writer: Descriptor, isHidden: Bool = false, _ change: (inout FileHeader) -> Void
    ) throws(StoreError) {
        if isHidden {
            return try keepingAttributes(writer) { (_) throws(StoreError) in try writeHeader(&state, writer, change) }
        }
        var header = state.header
        change(&header)
        let bytes = try StoreError.ofFormat(header.serialized(keys: keys))
        try syncs.writtenHeader.withLock { (written) throws(StoreError) in
            try writer.write(bytes, at: 0)
            written = bytes
        }
        syncs.countWrite()
        state.adopt(header)
        records.adopt(header)
    }
}

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
                try descriptor.synchronizeIfNamed(dataOnly: dataOnly)
            } catch {
                countFailedBackingSync()
                // Nobody misses a file without a name.
                if !reader.hasNoName {
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
