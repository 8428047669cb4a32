internal import CLinux
internal import FileSystem
internal import Glibc
internal import LinuxSystem
internal import SystemPackage
internal import VaultFormat
internal import VaultStore

/// A file whose chunks are being checked.
struct VerifierContent {
    let object: VerifierObject
    let descriptor: Descriptor
    var header: FileHeader
    let keys: FileKeys
    let layout: ChunkLayout
    /// The file's size after the log's changes are put in place.
    var backingSize: UInt64
    var logged: FileLog.Content?
    /// True after the file's torn tail was reported.
    var isTorn = false
    /// Adjacent chunks that do not verify, for one finding.
    var run: (chunks: Range<UInt64>, reason: String)?

    /// The plaintext length by the backing size.
    var length: UInt64 { layout.plaintextLength(ofBackingSize: backingSize) }

    /// Reads the records of one batch into the workspace, with the log's changes. Also returns the room for their
    /// plaintext.
    func read(
        _ chunks: Range<UInt64>, _ workspace: Workspace
    ) throws(StoreError) -> (UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer) {
        let lastSize = layout.plaintextSize(ofChunk: chunks.upperBound - 1, length: length)
        let count = (chunks.count - 1) * layout.chunkSize + lastSize
        let records = workspace.records.slice(..<(count + chunks.count * ChunkLayout.recordOverhead))
        let had = try descriptor.read(at: layout.recordOffset(ofChunk: chunks.lowerBound), into: records)
        // Zero the rest, because only the log has records past the end of the file.
        records.slice(had...).initializeMemory(as: UInt8.self, repeating: 0)
        if let logged {
            try LoggedChanges.replace(chunks.lowerBound, in: records, layout) { chunk in
                logged.changes.source(ofChunk: chunk).map { ($0, logged.log) }
            }
        }
        return (UnsafeRawBufferPointer(records), workspace.assembly.slice(..<count))
    }
}

extension Verifier {
    func checkFile(_ object: VerifierObject, _ pin: Descriptor) {
        do throws(StoreError) {
            if isCompleted, object.isNamed, !isInConflictCopy(object), try Completion.isIncomplete(pin) {
                return report(
                    .incomplete, object, "no header: a mount completes it as an empty file", remedy: .complete)
            }
            let descriptor = try pin.reopened(flags: O_RDONLY | O_NONBLOCK)
            let stored = try readHeader(of: descriptor)
            checkAttributes(of: descriptor, key: stored.keys.attributeKey, object)
            var content = VerifierContent(
                object: object, descriptor: descriptor, header: stored.header, keys: stored.keys, layout: layout,
                backingSize: stored.backingSize)
            applyLog(to: &content)
            try checkChunks(of: &content, upTo: checkLength(of: content))
            if !stored.header.isSealed {
                report(
                    .unsealed, object,
                    "its length cannot be checked yet: open it for writing and close it in a mount, or run "
                        + "'verify --repair'", remedy: .seal)
            }
        } catch {
            report(error, object, "file")
        }
    }

    private func readHeader(of descriptor: Descriptor) throws(StoreError) -> StoredHeader {
        do throws(StoreError) {
            let found = try StoredHeader(of: descriptor, keyRing: keyRing)
            keys.opened += 1
            return found
        } catch {
            keys.count(unopened: (try? StoredHeader.start(of: descriptor)) ?? [], keyRing.epochs)
            if let fileID = try? StoredHeader.unprovenFileID(of: descriptor), logged(fileID) != nil {
                hasLostChanges = true
            }
            throw error
        }
    }

    /// Reports a wrong length. Returns the number of chunks to check.
    private func checkLength(of content: VerifierContent) -> UInt64 {
        let length = content.length
        let excess = content.backingSize - layout.backingSize(ofPlaintextLength: length)
        if excess > 0 {
            report(
                .leftover, content.object, "\(excess) bytes past the last chunk hold no data",
                remedy: .cutRest)
        }
        guard content.header.isSealed, content.header.length != length else {
            return layout.chunkCount(ofLength: length)
        }
        let sealed = content.header.length
        let message = FileParts.wrongLength(length, expected: sealed)
        if length > sealed {
            let isTail = isCompleted || isInConflictCopy(content.object)
            report(
                isTail ? .tornTail : .damaged, content.object,
                isTail ? message + "; a mount ends the file there" : message, at: sealed, count: length - sealed,
                remedy: .cutBack)
            return layout.chunkCount(ofLength: sealed)
        }
        // The chunk at the cut is lost as well.
        let whole = layout.chunkIndex(ofPlaintextOffset: length)
        let lost = layout.plaintextOffset(ofChunk: whole)
        report(.damaged, content.object, message, at: lost, count: sealed - lost, remedy: .sealRest)
        return whole
    }

    private func applyLog(to content: inout VerifierContent) {
        guard !isInConflictCopy(content.object), let logged = logged(content.header.fileID) else { return }
        let changes = logged.changes
        if changes.outdated(content.header.sealCounter) > 0 { hasOutdatedEntries = true }
        if changes.sealCounter < content.header.sealCounter { return }
        content.logged = logged
        let length = changes.length(content.backingSize, layout)
        if length != content.length || changes.exactLength != nil {
            content.backingSize = layout.backingSize(ofPlaintextLength: length)
        }
        if changes.unseal(content.header, layout) { content.header.isSealed = false }
        if !changes.holes.isEmpty { content.header.isSparse = true }
        report(
            .logged, content.object, "chunks in vaultfs.log: \(changes.records.count); a mount puts them in place",
            remedy: .recover)
    }
}

extension Verifier {
    private static let zeroed = "data is zeroed, in a file without holes"
    private static let unverified = "data is damaged"
    /// Maximum number of batches between two progress reports.
    private static let mostShared: UInt64 = 64

    private func checkChunks(of content: inout VerifierContent, upTo end: UInt64) throws(StoreError) {
        var chunk: UInt64 = 0
        var mayBeHole = true
        while chunk < end {
            if mayBeHole {
                mayBeHole = false
                let hole = chunk..<(try endOfHole(at: chunk, of: content, upTo: end))
                if !hole.isEmpty {
                    count(hole, of: content)
                    if !content.header.isSparse { addToRun(hole, Self.zeroed, of: &content) }
                    chunk = hole.upperBound
                    continue
                }
            }
            let undamaged = chunk..<endOfUndamaged(from: chunk, of: content, upTo: end)
            if undamaged.isEmpty {
                let batch = chunk..<min(chunk + UInt64(workspace.batchChunks), end)
                mayBeHole = try checkBatch(batch, of: &content)
                chunk = batch.upperBound
            } else {
                count(undamaged, of: content)
                chunk = undamaged.upperBound
            }
            progress()
        }
        reportRun(of: &content)
    }

    /// Checks several batches on two threads. Returns the end of the batches before the first one with something to
    /// report or skip.
    private func endOfUndamaged(from start: UInt64, of content: VerifierContent, upTo end: UInt64) -> UInt64 {
        let size = UInt64(workspace.batchChunks)
        guard let helper, end - start > size else { return start }
        @Sendable func chunks(_ index: Int) -> Range<UInt64> {
            let first = start + UInt64(index) * size
            return first..<min(first + size, end)
        }
        let batches = Int(min(Self.mostShared, (end - start + size - 1) / size))
        let (done, _) = helper.share(batches, workspace) { (index, workspace) throws(StoreError) in
            let (records, plaintext) = try content.read(chunks(index), workspace)
            let isWhole = try workspace.scan(
                records, first: chunks(index).lowerBound, content.layout, content.keys.chunk, into: plaintext
            ) { (_, _, _) in false }
            guard isWhole else { throw .damaged("") }
        }
        return done == 0 ? start : chunks(done - 1).upperBound
    }

    /// Returns the end of the hole that begins at a chunk, or the chunk itself. This makes a huge hole cheap.
    private func endOfHole(
        at chunk: UInt64, of content: VerifierContent, upTo end: UInt64
    ) throws(StoreError) -> UInt64 {
        let offset = layout.recordOffset(ofChunk: chunk)
        let data: UInt64
        do {
            data = UInt64(try retrying { lseek(content.descriptor.fd, off_t(clamping: offset), linux_SEEK_DATA) })
        } catch .system(.noSuchAddressOrDevice) {
            // A hole up to the file's end, lseek(2).
            data = layout.recordOffset(ofChunk: end)
        } catch .system(.invalidArgument) {
            return chunk
        }
        let whole = (data - UInt64(ChunkLayout.headerSize)) / UInt64(layout.recordSize)
        let nextLogged = content.logged?.changes.records.keys.filter { $0 >= chunk }.min() ?? end
        return max(chunk, min(whole, end, nextLogged))
    }

    private func count(_ chunks: Range<UInt64>, of content: VerifierContent) {
        totals.chunks += UInt64(chunks.count)
        totals.bytes +=
            min(content.length, layout.plaintextOffset(ofChunk: chunks.upperBound))
            - layout.plaintextOffset(ofChunk: chunks.lowerBound)
    }

    /// Reads one batch, and reports its records that do not verify. Returns true if it ended with zeros, after which a
    /// hole may follow.
    private func checkBatch(_ chunks: Range<UInt64>, of content: inout VerifierContent) throws(StoreError) -> Bool {
        let (records, plaintext): (UnsafeRawBufferPointer, UnsafeMutableRawBufferPointer)
        do throws(StoreError) { (records, plaintext) = try content.read(chunks, workspace) } catch {
            guard chunks.count > 1 else {
                let offset = layout.plaintextOffset(ofChunk: chunks.lowerBound)
                report(error, content.object, "chunk \(chunks.lowerBound)", at: offset)
                return false
            }
            // After a bad block of the disk, read the chunks around it one by one.
            for chunk in chunks { _ = try checkBatch(chunk..<(chunk + 1), of: &content) }
            return false
        }
        count(chunks, of: content)
        var lastZero: UInt64?
        _ = try workspace.scan(records, first: chunks.lowerBound, layout, content.keys.chunk, into: plaintext) {
            (chunk, record, _) throws(StoreError) in
            let isZero = record.allSatisfy { $0 == 0 }
            if isZero { lastZero = chunk }
            try checkUnverified(record, chunk, isZero: isZero, of: &content)
            return true
        }
        return lastZero == chunks.upperBound - 1
    }

    /// Reports an unverifiable record, unless it is a hole, was never durable, or ends at the header's length.
    private func checkUnverified(
        _ record: UnsafeRawBufferPointer, _ chunk: UInt64, isZero: Bool, of content: inout VerifierContent
    ) throws(StoreError) {
        if isZero && content.header.isSparse { return }
        if try endsAsSealed(record, chunk, of: content) { return }
        guard !content.header.isSealed, isCompleted || isInConflictCopy(content.object),
            chunk >= layout.chunkCount(ofLength: content.header.length)
        else { return addToRun(chunk..<(chunk + 1), isZero ? Self.zeroed : Self.unverified, of: &content) }
        guard !content.isTorn else { return }
        content.isTorn = true
        reportRun(of: &content)
        let offset = layout.plaintextOffset(ofChunk: chunk)
        report(
            .tornTail, content.object,
            "chunk \(chunk): was being written at an unclean end; a mount ends the file here", at: offset,
            count: content.length - offset, remedy: .cutTail)
    }

    /// Returns true for the last chunk of a sealed file with appended bytes. Its record is shorter than the backing
    /// size implies.
    private func endsAsSealed(
        _ record: UnsafeRawBufferPointer, _ chunk: UInt64, of content: VerifierContent
    ) throws(StoreError) -> Bool {
        guard content.header.isSealed, content.header.length < content.length else { return false }
        let size = layout.plaintextSize(ofChunk: chunk, length: content.header.length)
        guard size > 0, size + ChunkLayout.recordOverhead < record.count else { return false }
        let sealed = record.slice(..<(size + ChunkLayout.recordOverhead))
        if content.header.isSparse && sealed.allSatisfy({ $0 == 0 }) { return true }
        return try workspace.scan(
            sealed, first: chunk, layout, content.keys.chunk, into: workspace.edge.slice(..<size)
        ) { (_, _, _) in false }
    }

    private func addToRun(_ chunks: Range<UInt64>, _ reason: String, of content: inout VerifierContent) {
        if let run = content.run, run.chunks.upperBound == chunks.lowerBound, run.reason == reason {
            content.run = (run.chunks.lowerBound..<chunks.upperBound, reason)
        } else {
            reportRun(of: &content)
            content.run = (chunks, reason)
        }
    }

    private func reportRun(of content: inout VerifierContent) {
        guard let run = content.run else { return }
        content.run = nil
        let first = run.chunks.lowerBound
        let last = run.chunks.upperBound - 1
        let offset = layout.plaintextOffset(ofChunk: first)
        let end = min(content.length, layout.plaintextOffset(ofChunk: run.chunks.upperBound))
        let which = first == last ? "chunk \(first): its" : "chunks \(first)…\(last): their"
        report(.damaged, content.object, "\(which) \(run.reason)", at: offset, count: end - offset)
    }
}
